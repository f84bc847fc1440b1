"""The processes of a mesh that asks and replies: one has the publisher's peer, the others many peers each."""

import asyncio
import random
import time
from contextlib import AsyncExitStack

import msgspec

from anabranch import Config, Peer
from anabranch.overlay.asking import Protocol
from anabranch.tools.bench.jobs import Job, Parent
from anabranch.tools.bench.replies.layout import Plan, load_topic, topic_of
from anabranch.tools.bench.replies.tally import Run, row_of
from anabranch.tools.bench.waiting import until_stopped
from anabranch.transport.loops import run
from anabranch.transport.message import Message

FORM_TIMEOUT_S = 60.0
WITHIN_S = 10.0
WARM_UPS = 3


class MeshJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a process of the mesh has to know."""

    plan: Plan
    addresses: list[str]
    """By peer."""
    own: list[int]
    """The peers of this process."""
    scenarios: dict[str, dict[int, int]]
    """By name: repliers by peer."""
    protocols: list[str] = []
    load: float = 0.0
    runs: int = 1
    tau_s: float = 1.0
    values: int = 10
    """How many different replies there are."""


def host(job: Job, parent: Parent) -> None:
    """Peers that reply."""
    run(_host(job, parent))


def ask(job: Job, parent: Parent) -> None:
    """The publisher's peer."""
    run(_ask(job, parent))


async def _host(job: Job, parent: Parent) -> None:
    mesh = msgspec.convert(job.more, MeshJob, strict=False)
    async with AsyncExitStack() as stack:
        for number in mesh.own:
            await _enter(stack, mesh, number)
        parent.report("ready")
        await until_stopped(parent)


async def _ask(job: Job, parent: Parent) -> None:
    mesh = msgspec.convert(job.more, MeshJob, strict=False)
    async with AsyncExitStack() as stack:
        peer = await _enter(stack, mesh, 0)
        for scenario, repliers in mesh.scenarios.items():
            await peer.wait_for_subscribers(topic_of(scenario), len(repliers), timeout=FORM_TIMEOUT_S)
        await peer.wait_for_links(mesh.plan.children(0), timeout=FORM_TIMEOUT_S)
        parent.report("ready")
        for scenario, repliers in mesh.scenarios.items():
            expected = sum(repliers.values())
            taken: dict[str, list[Run]] = {protocol: [] for protocol in mesh.protocols}
            for number in range(WARM_UPS + mesh.runs):
                for protocol in mesh.protocols:  # in turns, so that a busy moment hits them alike
                    one = await _run(peer, topic_of(scenario), protocol, mesh.tau_s)
                    if number >= WARM_UPS:
                        taken[protocol].append(one)
            for protocol, runs in taken.items():
                parent.report("row", row=row_of(scenario, protocol, mesh.load, expected, runs))
        parent.report("over", counters=dict(peer.counters))
        await until_stopped(parent)


async def _run(peer: Peer, topic: str, protocol: str, tau_s: float) -> Run:
    merge = "histogram" if protocol == Protocol.MERGE else ""
    before = peer.counters["reply_bundles"]
    begun = time.perf_counter()
    harvest = await peer.request(topic, protocol=protocol, merge=merge, within=WITHIN_S, tau=tau_s)
    times = [] if merge else [time.perf_counter() - begun async for _ in harvest]
    result = await harvest
    taken = time.perf_counter() - begun
    messages = peer.counters["reply_bundles"] - before
    return Run(taken, times, result.answered, result.complete, messages)


async def _enter(stack: AsyncExitStack, mesh: MeshJob, number: int) -> Peer:
    plan = mesh.plan
    parent = plan.parents[number]
    peer = await stack.enter_async_context(
        Peer(
            plan.names[number],
            listen=mesh.addresses[number],
            join=[mesh.addresses[parent]] if parent >= 0 else [],
            config=Config(neighbours_target=0),
            open=True,
        )
    )
    for scenario, repliers in mesh.scenarios.items():
        for replier in range(repliers.get(number, 0)):
            value = (number + replier) % mesh.values

            def answer(message: Message, value: int = value) -> None:
                message.reply(value)

            peer.subscribe(topic_of(scenario), callback=answer)
    if mesh.load:
        peer.subscribe(load_topic(number), queue_max=16)
        loading = asyncio.create_task(_load(peer, mesh.load, number))
        stack.callback(loading.cancel)
    return peer


async def _load(peer: Peer, rate: float, seed: int) -> None:
    """Random traffic between the peers, so many messages per second from each."""
    rng = random.Random(seed)  # noqa: S311 - must be repeatable
    while True:
        await asyncio.sleep(rng.expovariate(rate))
        await peer.put(load_topic(rng.randrange(1000)), b"load" * 16)
