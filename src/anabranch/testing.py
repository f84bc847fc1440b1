"""Meshes for the tests of programs that use Anabranch: no network, and faults at will.

`Mesh` runs the real protocol in virtual time: no sockets, no waiting, the same course for the same seed.
`mesh(...)` gives real peers, wired inside this process, for code that awaits `Peer`.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from anabranch.overlay.config import Config
from anabranch.overlay.errors import UsageError
from anabranch.overlay.qos import Role
from anabranch.transport.simulator import Conditions, Delivery, SimSubscription, Simulator

if TYPE_CHECKING:
    from anabranch.transport.peer import Peer

SETTLE_S = 30.0
"""How long a mesh may take to know itself before `settle` gives up: virtual seconds cost little."""


class MeshMessage(msgspec.Struct, frozen=True):
    """A message that arrived in a `Mesh`; the names are those of `anabranch.Message`."""

    topic: str
    payload: object
    origin: str
    publisher: int
    sequence: int
    path: tuple[str, ...]
    age: float
    """As the receiving peer estimated it; `arrived_at - put_at` is the truth."""
    late: bool
    put_at: float
    arrived_at: float


class Inbox:
    """What a subscription in a `Mesh` received."""

    def __init__(self, subscription: SimSubscription) -> None:
        self._subscription = subscription

    def __len__(self) -> int:
        return len(self._subscription.messages)

    @property
    def messages(self) -> list[MeshMessage]:
        """Everything that arrived, oldest first."""
        return [_message(delivery) for delivery in self._subscription.messages]

    @property
    def payloads(self) -> list[object]:
        """The payloads of everything that arrived, oldest first."""
        return [delivery.payload for delivery in self._subscription.messages]

    def clear(self) -> None:
        """Forget what arrived so far."""
        self._subscription.messages.clear()

    def assert_payloads(self, *expected: object) -> None:
        """Exactly these payloads arrived, in this order."""
        if self.payloads != list(expected):
            name, pattern = self._subscription.peer, self._subscription.pattern
            raise AssertionError(f"{name} got {self.payloads} for {pattern!r}, expected {list(expected)}")


class Mesh:
    """A mesh of peers in virtual time, each linked to every other unless `joins` says otherwise.

        >>> mesh = Mesh("tower", "radar", "relay", seed=7)
        >>> inbox = mesh.subscribe("tower", "air/*")
        >>> mesh.settle()
        >>> mesh.publish("radar", "air/plots", {"altitude": 9000})
        >>> mesh.run_for(0.1)
        >>> inbox.payloads
        [{'altitude': 9000}]
        >>> mesh.fail("radar", "tower")  # nobody is told: the mesh has to notice
        >>> mesh.run_for(2.0)
        >>> mesh.publish("radar", "air/plots", {"altitude": 9500})
        >>> mesh.run_for(0.1)
        >>> inbox.messages[-1].path
        ('radar', 'relay', 'tower')

    The nodes' invariants are checked after every event, and the promises about deliveries always (nothing
    twice, nothing out of order, nothing that was not published): AssertionError names the seed if one fails.
    """

    def __init__(self, *peers: str, seed: int = 0, delay: float = 0.01, config: Config | None = None) -> None:
        self._config = config or Config(neighbours_target=0)
        self._sim = Simulator(seed, default=Conditions(delay_s=delay))
        for name in peers:
            self.add_peer(name)

    @property
    def now(self) -> float:
        """Virtual time in seconds, from 0."""
        return self._sim.now

    @property
    def peers(self) -> list[str]:
        """The names of all peers, crashed ones too."""
        return list(self._sim.peers)

    @property
    def simulator(self) -> Simulator:
        """The simulator underneath, for what this class does not offer."""
        return self._sim

    # Peers

    def add_peer(
        self,
        name: str,
        *,
        joins: Iterable[str] | None = None,
        client: bool = False,
        config: Config | None = None,
    ) -> None:
        """Start a peer. It dials `joins` (default: all peers there are); a light client attaches to one."""
        routing = [peer.name for peer in self._sim.peers.values() if peer.config.role is not Role.CLIENT]
        settings = config or self._config
        if client:
            settings = settings.replace(role=Role.CLIENT)
        self._sim.add_peer(name, config=settings, seeds=routing if joins is None else list(joins))

    def crash(self, name: str, *, reset: bool = False) -> None:
        """End a peer without a farewell; with `reset` its neighbours see their connections close."""
        self._sim.crash(name, reset=reset)

    def restart(self, name: str) -> None:
        """Start a crashed peer again; its application makes the same subscriptions."""
        self._sim.restart(name)

    def leave(self, name: str) -> None:
        """Close a peer in order."""
        self._sim.leave(name)

    def pause(self, name: str) -> None:
        """Let a peer stand still, as SIGSTOP does."""
        self._sim.pause(name)

    def resume(self, name: str) -> None:
        """Let it go on."""
        self._sim.resume(name)

    # The network

    def link(
        self,
        a: str,
        b: str,
        *,
        delay: float | None = None,
        jitter: float | None = None,
        loss: float | None = None,
        reorder: float | None = None,
        rate: float | None = None,
    ) -> None:
        """Set what the network does between two peers, both ways: seconds, shares, bytes per second."""
        given = {
            "delay_s": delay,
            "jitter_s": jitter,
            "loss": loss,
            "reorder": reorder,
            "rate_bytes_s": rate,
        }
        self._known(a, b)
        self._sim.change(a, b, **{name: value for name, value in given.items() if value is not None})

    def fail(self, a: str, b: str) -> None:
        """Let everything between two peers vanish; nobody is told."""
        self._known(a, b)
        self._sim.change(a, b, blackhole=True)

    def restore(self, a: str, b: str) -> None:
        """End `fail`."""
        self._known(a, b)
        self._sim.change(a, b, blackhole=False)

    def partition(self, *groups: Iterable[str]) -> None:
        """Only peers of one group reach each other; those in no group form one of their own."""
        self._sim.partition(*groups)

    def heal(self) -> None:
        """End the partition."""
        self._sim.heal()

    # Applications

    def subscribe(
        self,
        peer: str,
        pattern: str,
        callback: Callable[[MeshMessage], None] | None = None,
        *,
        where: str | None = None,
    ) -> Inbox:
        """Subscribe at a peer. The callback, if any, is called for each message and may publish."""
        if callback is None:
            return Inbox(self._sim.subscribe(peer, pattern, where=where))
        return Inbox(
            self._sim.subscribe(peer, pattern, where=where, callback=lambda each: callback(_message(each)))
        )

    def publish(
        self,
        peer: str,
        topic: str,
        *payloads: object,
        deadline: float | None = None,
        attributes: Mapping[str, object] | None = None,
        to: str | None = None,
    ) -> None:
        """Put messages at a peer; they travel when time passes."""
        self._sim.publish(peer, topic, *payloads, deadline_s=deadline or 0.0, attributes=attributes, to=to)

    def set_attributes(self, peer: str, attributes: Mapping[str, object]) -> None:
        """Say what a peer's site is."""
        self._sim.set_attributes(peer, attributes)

    # Time

    def run_for(self, seconds: float) -> None:
        """Let virtual time pass."""
        self._sim.run_for(seconds)

    def run_until(self, condition: Callable[[], bool], *, within: float = SETTLE_S) -> None:
        """Let time pass until the condition holds; AssertionError if it does not within so many seconds."""
        if not self._sim.run_until_true(condition, within):
            raise AssertionError(f"the condition does not hold {within} s later, at {self.now:.3f} s")

    def settle(self, *, within: float = SETTLE_S) -> None:
        """Let time pass until all running peers know and reach each other."""
        if not self._sim.run_until_true(self._sim.is_settled, within, every_s=0.05):
            raise AssertionError(
                f"{within} s later the peers still don't reach each other: {', '.join(self._lost())}"
            )

    # Looking

    def path(self, source: str, target: str) -> tuple[str, ...]:
        """The path that messages from one peer to another take now; empty when there is none."""
        self._known(source, target)
        return self._sim.peer(source).node.routes.path(target)

    def links(self, peer: str) -> list[str]:
        """The neighbours to which a peer has a link."""
        return sorted(self._sim.peer(peer).node.links.by_peer)

    def counters(self, *peers: str) -> dict[str, int]:
        """What happened how often, drops by reason included, summed over these peers (default: all)."""
        self._known(*peers)
        return self._sim.counters(peers)

    def assert_nothing_lost(self, *, since: float = 0.0) -> None:
        """Every subscription got what it wanted of all that was put from `since` until now."""
        missing = self._sim.ledger.missing(since, float("inf"))
        if missing:
            first = missing[0]
            raise AssertionError(
                f"{len(missing)} messages did not arrive; the first: {first.topic!r} number {first.sequence} "
                f"of {first.origin}, put at {first.published_at:.3f} s, for {first.subscriber}"
            )

    def _known(self, *names: str) -> None:
        for name in names:
            self._sim.peer(name)

    def _lost(self) -> list[str]:
        wanted = {peer.name: peer.patterns() for peer in self._sim.running()}
        return [peer.name for peer in self._sim.running() if not peer.knows(wanted)]


@asynccontextmanager
async def mesh(
    *names: str, config: Config | None = None, timeout: float = 10.0
) -> AsyncIterator[dict[str, "Peer"]]:
    """Real peers by name, each linked to every other over ipc in this process; entered when all are.

    async with mesh("a", "b") as peers:
        async with peers["b"].subscribe("t") as inbox:
            await peers["a"].wait_for_subscribers("t")
            await peers["a"].put("t", 42)
            assert (await inbox.receive()).payload == 42
    """
    from anabranch.transport.peer import Peer

    if len(set(names)) != len(names):
        raise UsageError(f"mesh{names}: each name once")
    settings = config or Config.local(neighbours_target=0)
    with tempfile.TemporaryDirectory(prefix="anabranch-") as directory:
        addresses = {name: f"ipc://{Path(directory) / str(number)}" for number, name in enumerate(names)}
        async with AsyncExitStack() as stack:
            peers: dict[str, Peer] = {}
            for name in names:
                join = [addresses[other] for other in peers]
                peer = Peer(name, listen=addresses[name], join=join, config=settings, open=True)
                peers[name] = await stack.enter_async_context(peer)
            async with asyncio.timeout(timeout):
                for name, peer in peers.items():
                    await peer.wait_for_links(len(peers) - 1)
                    await peer.wait_for_peers(*(other for other in peers if other != name))
            yield peers


def _message(delivery: Delivery) -> MeshMessage:
    return MeshMessage(
        delivery.topic,
        delivery.payload,
        delivery.origin,
        delivery.publisher,
        delivery.sequence,
        delivery.path,
        delivery.age_s,
        0 < delivery.deadline_s < delivery.age_s,
        delivery.published_at,
        delivery.time,
    )
