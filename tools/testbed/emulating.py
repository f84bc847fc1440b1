"""Runs a scenario in real time: real peers as processes on emulated hosts. One variant, one seed.

Does what `tools/scenarios/simulating.py` does in virtual time; `gathering.py` makes the numbers.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from anabranch.overlay.errors import AnabranchError, UsageError
from anabranch.overlay.qos import Role
from anabranch.tools.scenarios.disturbances import Changed, Disturbances
from anabranch.tools.scenarios.layout import Layout
from anabranch.tools.scenarios.schema import Pair, Scenario
from anabranch.tools.scenarios.simulating import Job, trace_steps
from anabranch.tools.scenarios.timeline import Happening, LinkHappenings, timeline
from anabranch.tools.scenarios.truth import Truth
from anabranch.tools.testbed import peer_process
from anabranch.tools.testbed.backends import Backend, Emulation
from anabranch.tools.testbed.children import Child
from anabranch.tools.testbed.orders import (
    Begin,
    Ended,
    Event,
    FlowOrder,
    Prepare,
    Prepared,
    SubscriptionOrder,
    Traffic,
)
from anabranch.tools.testbed.programs import Program, start_program
from anabranch.transport.simulator import Conditions

SET_UP_TIMEOUT_S = 60.0
LEAVE_TIMEOUT_S = 8.0
BEGIN_AFTER_S = 0.2
"""Between telling all peers when to begin and that time."""
PROGRESS_EVERY_S = 0.5
SAID_MAX = 10_000


class Course(msgspec.Struct):
    """What a run left: the material of its summary. Times are those of the scenario."""

    layout: Layout
    happenings: list[Happening]
    truth: Truth
    start_at: float
    """`time.monotonic` at the scenario's time 0."""
    notes: list[Path]
    traffic: dict[str, list[tuple[float, dict[str, int]]]]
    """By peer: counters as they were told."""
    downs: dict[str, list[float]]
    """By peer: when it crashed."""
    problems: list[str]
    said: list[tuple[str, str]] = msgspec.field(default_factory=list)
    """(peer, line): what programs wrote to stdout, the first `SAID_MAX` lines."""
    emulation: Emulation | None = None


class Emulating:
    """One run. Afterwards no process and no namespace is left, however it ended."""

    def __init__(self, job: Job, backend: Backend, scratch: Path) -> None:
        scenario = job.scenario
        layout = Layout(scenario, job.seed)
        self.course = Course(
            layout, timeline(scenario, layout, job.seed), Truth(layout.relays), 0.0, [], {}, {}, []
        )
        self._job = job
        self._scenario: Scenario = scenario
        self._layout = layout
        self._backend = backend
        self._scratch = scratch
        self._disturbances = Disturbances(layout)
        self._network: dict[Pair, Conditions] = {}
        """By direction, without partitions and dead hosts."""
        self._side: dict[str, int] = {}
        self._dark: set[str] = set()
        """Hosts without power."""
        self._children: dict[str, Child] = {}
        self._states: dict[str, str] = {}
        self._incarnations = dict.fromkeys(layout.names, 0)
        self._ready: dict[str, asyncio.Event] = {}
        self._ended: dict[str, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed = asyncio.Event()
        self._ending = False

    async def run(self, on_progress: Callable[[float], None] | None = None) -> Course:
        """From the first process to the last."""
        try:
            await self._set_up()
            await self._play(on_progress)
            self._ending = True
            await self._wind_down()
        finally:
            self._ending = True
            await self._end_all()
        return self.course

    # Beginning and end

    async def _set_up(self) -> None:
        layout = self._layout
        if self._backend.kind == "proxies" and layout.mesh == "join":
            raise UsageError(
                'network.mesh = "join": the peers of proxies reach only the links of the file; '
                "use --backend namespaces, or another mesh"
            )
        await self._backend.open(layout.names, layout.links, layout.default, self._job.seed)
        steps = trace_steps(self._scenario, layout, self._job.seed)
        at_first = dict(layout.conditions)
        if steps and steps[0][0] == 0:
            at_first |= self._disturbances.rebase(steps.pop(0)[1])
        await self._apply(at_first)
        await asyncio.gather(*(self._prepare(name) for name in layout.names))
        await self._until_ready(layout.names)
        self.course.start_at = time.monotonic() + BEGIN_AFTER_S
        for name in layout.names:
            await self._begin_peer(name)
        self._note_truth(0.0)
        for at, changes in steps:
            self._plan(at, lambda changes=changes: self._apply(self._disturbances.rebase(changes)))  # type: ignore[misc]
        for number, happening in enumerate(self.course.happenings):
            self._plan(happening.at_s, lambda n=number, each=happening: self._begin(n, each))  # type: ignore[misc]
            if happening.until_s is not None and happening.until_s <= self._scenario.end_s:
                self._plan(happening.until_s, lambda n=number, each=happening: self._end(n, each))  # type: ignore[misc]

    async def _play(self, on_progress: Callable[[float], None] | None) -> None:
        end = self.course.start_at + self._scenario.end_s
        while (left := end - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._failed.wait(), min(left, PROGRESS_EVERY_S))
                raise AnabranchError(self.course.problems[0])
            if on_progress is not None:
                on_progress(1 - left / self._scenario.end_s)

    async def _wind_down(self) -> None:
        self.course.emulation = await self._backend.report()
        living = [name for name, state in self._states.items() if state in ("running", "paused")]
        for name in living:
            self._children[name].signal(signal.SIGCONT)
            self._children[name].leave()
        waits = [self._ended[name].wait() for name in living]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*waits), LEAVE_TIMEOUT_S)

    async def _end_all(self) -> None:
        for child in self._children.values():
            child.signal(signal.SIGCONT)
        await asyncio.gather(*(child.end() for child in self._children.values()))
        await self._backend.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Peers

    async def _prepare(self, name: str) -> None:
        self._states[name] = "running"
        self._ready[name], self._ended[name] = asyncio.Event(), asyncio.Event()
        if self._layout.table(name).program:
            self._ready[name].set()  # it is started by `_begin_peer`
            return
        host = self._backend.host(name)
        place = next(place for place in self._layout.places if place.name == name)
        stderr = self._scratch / f"{name}.stderr"
        child = await Child.start(name, peer_process.__name__, stderr, *host.namespaces)
        self._incarnations[name] += 1
        incarnation = self._incarnations[name]
        notes = self._scratch / f"{name}-{incarnation}.notes"
        self.course.notes.append(notes)
        self._children[name] = child
        is_client = place.role is Role.CLIENT
        config = self._layout.config(name, self._job.variant)
        child.tell(
            Prepare(
                name=name,
                listen="" if is_client else host.listen,
                join=[],
                advertise=[] if is_client else host.advertise,
                config=msgspec.to_builtins(config),
                notes=str(notes),
                log_dir=self._job.log_dir,
                incarnation=incarnation,
                flows=self._flows(name),
                subscriptions=self._subscriptions(name),
            )
        )
        self._spawn(self._listen(name, child))

    def _flows(self, name: str) -> list[FlowOrder]:
        run, size = self._scenario.run, self._job.size_bytes
        return [
            FlowOrder(
                number=number,
                topic=flow.topic,
                rate_per_s=flow.rate_per_s,
                size_bytes=flow.size_bytes if size is None else size,
                deadline_s=(flow.deadline_ms or 0.0) / 1e3,
                start_s=run.warmup_s if flow.start_s is None else flow.start_s,
                stop_s=run.duration_s if flow.stop_s is None else min(flow.stop_s, run.duration_s),
            )
            for number, flow in enumerate(self._scenario.flows)
            if name in self._layout.peers(flow.peer)
        ]

    def _subscriptions(self, name: str) -> list[SubscriptionOrder]:
        found = []
        number = 0
        for table in self._scenario.subscriptions:
            for pattern in table.patterns:
                number += 1
                if name in self._layout.peers(table.peer):
                    found.append(
                        SubscriptionOrder(
                            number=number, pattern=pattern, start_s=table.start_s, stop_s=table.stop_s
                        )
                    )
        return found

    async def _until_ready(self, names: list[str]) -> None:
        waits = asyncio.gather(*(self._ready[name].wait() for name in names))
        failed: asyncio.Future[Any] = asyncio.ensure_future(self._failed.wait())
        try:
            both: set[asyncio.Future[Any]] = {waits, failed}
            await asyncio.wait(both, timeout=SET_UP_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
            if not waits.done():
                late = [name for name in names if not self._ready[name].is_set()]
                raise AnabranchError(
                    self.course.problems[0]
                    if self.course.problems
                    else f"not ready after {SET_UP_TIMEOUT_S:.0f} s: {', '.join(late)}"
                )
        finally:
            waits.cancel()
            failed.cancel()
            await asyncio.gather(waits, failed, return_exceptions=True)

    async def _begin_peer(self, name: str) -> None:
        place = next(place for place in self._layout.places if place.name == name)
        join = self._backend.dials(name, place.dials)
        if command := self._layout.table(name).program:
            stderr = self._scratch / f"{name}.stderr"
            program = await start_program(name, command, self._backend.host(name), join, stderr)
            self._children[name] = program
            self._spawn(self._follow(name, program))
            return
        self._children[name].tell(Begin(at=self.course.start_at, join=join))

    async def _listen(self, name: str, child: Child) -> None:
        ready, ended = self._ready[name], self._ended[name]
        told = self.course.traffic.setdefault(name, [])
        offset = dict(told[-1][1].items()) if told else {}
        async for line in child.events():
            event: Event = msgspec.json.decode(line, type=Event)
            if isinstance(event, Prepared):
                ready.set()
            elif isinstance(event, Traffic | Ended):
                at = (event.at if isinstance(event, Traffic) else time.monotonic()) - self.course.start_at
                sums = {key: event.counters.get(key, 0) + offset.get(key, 0) for key in event.counters}
                told.append((at, sums))
                if isinstance(event, Ended):
                    ended.set()
        ended.set()
        await self._note_end(name, child)

    async def _follow(self, name: str, program: Program) -> None:
        said = self.course.said
        async for line in program.events():
            if len(said) < SAID_MAX:
                said.append((name, line.decode(errors="replace").rstrip("\n")))
        if await program.wait() == 0 and self._states[name] == "running":
            self._states[name] = "left"
        self._ended[name].set()
        await self._note_end(name, program)

    async def _note_end(self, name: str, child: Child) -> None:
        code = await child.wait()
        is_expected = self._ending or self._children.get(name) is not child or self._states[name] != "running"
        if not is_expected:
            wrote = child.wrote()
            said = f"; it wrote:\n{wrote}" if wrote else ""
            self.course.problems.append(f"the process of peer {name} ended with code {code}{said}")
            self._failed.set()

    # What happens

    def _plan(self, at_s: float, what: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def later() -> None:
            await asyncio.sleep(max(0.0, self.course.start_at + at_s - time.monotonic()))
            try:
                await what()
            except AnabranchError as error:
                if not self._ending:
                    self.course.problems.append(str(error))
                    self._failed.set()
            self._note_truth(at_s)

        self._spawn(later())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _begin(self, number: int, happening: Happening) -> None:
        if happening.do in LinkHappenings:
            await self._apply(self._disturbances.begin(number, happening))
        elif happening.do == "partition":
            self._side = {name: side for side, group in enumerate(happening.groups) for name in group}
            await self._apply_all()
        elif happening.do == "heal":
            self._side = {}
            await self._apply_all()
        for name in happening.peers:
            await self._change_peer(happening.do, name, reset=happening.reset)

    async def _end(self, number: int, happening: Happening) -> None:
        if happening.ways:
            await self._apply(self._disturbances.end(number, happening))
        elif happening.groups:
            self._side = {}
            await self._apply_all()
        undo = {"crash": "restart", "pause": "resume"}.get(happening.do, "")
        for name in happening.peers:
            await self._change_peer(undo, name, reset=False)

    async def _change_peer(self, do: str, name: str, *, reset: bool) -> None:
        state, child = self._states[name], self._children[name]
        if do == "crash" and state != "crashed":
            self._states[name] = "crashed"
            self.course.downs.setdefault(name, []).append(time.monotonic() - self.course.start_at)
            if not reset:  # the host loses its power: nobody is told
                self._dark.add(name)
                await self._apply_all()
            child.kill()
            await child.wait()
        elif do == "restart" and state == "crashed":
            self._dark.discard(name)
            await self._apply_all()
            await self._prepare(name)
            await self._until_ready([name])
            await self._begin_peer(name)
        elif do == "pause" and state == "running":
            self._states[name] = "paused"
            child.signal(signal.SIGSTOP)
        elif do == "resume" and state == "paused":
            child.signal(signal.SIGCONT)
            self._states[name] = "running"
        elif do == "leave" and state == "running":
            self._states[name] = "left"
            child.leave()

    # The network

    async def _apply_all(self) -> None:
        names = self._layout.names
        ways = {(a, b): self._conditions(a, b) for a in names for b in names if a != b}
        await self._backend.shape(ways)

    async def _apply(self, changed: Changed) -> None:
        self._network |= changed
        await self._backend.shape({way: self._conditions(*way) for way in changed})

    def _conditions(self, source: str, target: str) -> Conditions:
        conditions = self._network.get((source, target), self._layout.default)
        if self._side.get(source, -1) != self._side.get(target, -1) or {source, target} & self._dark:
            return conditions.replace(blackhole=True)
        return conditions

    def _note_truth(self, at_s: float) -> None:
        up, dark = {}, set()
        running = {name for name, state in self._states.items() if state == "running"}
        for way in self._layout.possible_ways:
            if running.issuperset(way):
                conditions = self._conditions(*way)
                if conditions.blackhole:
                    dark.add(way)
                elif conditions.loss < 1:
                    up[way] = conditions.delay_s
        self.course.truth.note(at_s, up, dark)
