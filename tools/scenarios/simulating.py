"""Runs a scenario in virtual time: one variant, one seed. `measuring.py` makes the numbers of it."""

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from anabranch.overlay.errors import UsageError
from anabranch.overlay.qos import Variant
from anabranch.overlay.records import LogRecord
from anabranch.tools.scenarios.disturbances import Changed, Disturbances
from anabranch.tools.scenarios.layout import Layout
from anabranch.tools.scenarios.measuring import Measured, measure
from anabranch.tools.scenarios.recordfiles import RecordFiles
from anabranch.tools.scenarios.schema import Flow, Pair, Scenario, Subscription
from anabranch.tools.scenarios.timeline import Happening, LinkHappenings, timeline
from anabranch.tools.scenarios.truth import Truth
from anabranch.transport.simulator import SimSubscription, Simulator

TraceStep = tuple[float, dict[Pair, tuple[float | None, float]]]
"""When, and by direction: the delay (None: nothing arrives) and the loss from then on."""
PROGRESS_STEPS = 200
"""How often a run says how far it is."""


class Job(msgspec.Struct, frozen=True):
    """What a run is made of; small, so that it can be sent to another process."""

    scenario: Scenario
    variant: str
    seed: int
    check: bool = False
    """Assert the nodes' invariants after every event."""
    log_dir: str | None = None
    size_bytes: int | None = None
    """Payload size of every flow, instead of the file's."""
    together: tuple[str, ...] = ()
    """Variants that share the mesh of `variant`, each with the flows and subscriptions of its own. What they
    measure and tell is made once; where messages get lost they would help each other."""


class RunResult(msgspec.Struct, frozen=True):
    """One run. Everything but `cpu_s` repeats exactly."""

    variant: str
    seed: int
    measured: Measured
    events: int
    trace_hash: str
    cpu_s: float
    """Of the simulation alone, without summing it up."""
    size_bytes: int | None = None


def simulate(job: Job, on_progress: Callable[[float], None] | None = None) -> RunResult:
    """Run to the end; `on_progress` gets the share of virtual time that has passed."""
    (result,) = simulate_together(job, on_progress)
    return result


def simulate_together(job: Job, on_progress: Callable[[float], None] | None = None) -> list[RunResult]:
    """The same for all variants of a job, in their order; they share its cost."""
    begin = time.process_time()
    scenario = job.scenario
    layout = Layout(scenario, job.seed)
    files = None
    if job.log_dir is not None:
        offsets = {place.name: place.clock_offset_s for place in layout.places}
        files = RecordFiles(Path(job.log_dir), offsets)
    try:
        stage = Stage(job, layout, files.write if files is not None else None)
        sim = stage.sim
        sim.run_until(scenario.run.warmup_s)
        sim.meter().is_by_group = bool(job.together)
        before = _sent(sim)
        for step in range(1, PROGRESS_STEPS + 1):
            sim.run_until(max(sim.now, scenario.end_s * step / PROGRESS_STEPS))
            if on_progress is not None:
                on_progress(sim.now / scenario.end_s)
        sim.write_counters()
    finally:
        if files is not None:
            files.close()
    share = max(1, len(job.together))
    cpu_s = (time.process_time() - begin) / share
    control_bytes, data_bytes, bundles, ack_bytes = (
        now - then for now, then in zip(_sent(sim), before, strict=True)
    )
    results = []
    for variant in job.together or ("",):
        own = sim.meter().sent_bundles(variant)
        foreign_acks = round(ack_bytes * (1 - own / bundles)) if variant and bundles else 0
        measured = measure(
            scenario,
            sim.ledger,
            stage.subscriptions[variant],
            stage.happenings,
            stage.truth,
            control_bytes=control_bytes - foreign_acks,
            data_bytes=sim.meter().sent_bytes(variant) if variant else data_bytes,
            bundles=own if variant else bundles,
            carried=sim.meter().carried(variant),
            prefix=_within(variant),
        )
        results.append(
            RunResult(
                variant or job.variant,
                job.seed,
                measured,
                sim.events // share,
                sim.trace_hash(),
                cpu_s,
                job.size_bytes,
            )
        )
    return results


def _sent(sim: Simulator) -> tuple[int, int, int, int]:
    """Bytes of control and of data, bundles, and bytes of acknowledgements: the only control that grows with
    the messages."""
    ack_bytes = sum(peer.node.counters["sent.ack_bytes"] for peer in sim.peers.values())
    return sim.control_bytes(), sim.data_bytes(), sim.bundles_sent(), ack_bytes


def trace_steps(scenario: Scenario, layout: Layout, seed: int) -> list[TraceStep]:
    """What the recorded network of a scenario does when; empty without one."""
    if scenario.trace is None:
        return []
    try:
        from anabranch.tools.traces.playback import Playback
    except ModuleNotFoundError as error:
        raise UsageError(
            f"[trace] needs {error.name}, which is not installed: pip install 'anabranch[replay]'"
        ) from None
    return list(Playback(scenario, layout.names, layout.possible_ways, seed).steps())


class Stage:
    """The simulator with a scenario's peers, traffic and happenings on it."""

    def __init__(
        self, job: Job, layout: Layout, on_record: Callable[[LogRecord], None] | None = None
    ) -> None:
        self._scenario = scenario = job.scenario
        self._layout = layout
        self.happenings = timeline(scenario, layout, job.seed)
        self._together = job.together or ("",)
        self.subscriptions: dict[str, list[tuple[str, SimSubscription]]] = {
            variant: [] for variant in self._together
        }
        """By variant, where several share the mesh: with the names that results call them by."""
        self._disturbances = Disturbances(layout)
        self._size_bytes = job.size_bytes
        self.sim = sim = Simulator(
            job.seed, check=job.check, default=layout.default, keep_messages=False, on_record=on_record
        )
        for (source, target), conditions in layout.conditions.items():
            sim.set_conditions(source, target, conditions)
        self._plan_trace(job.seed)
        for place in layout.places:
            sim.add_peer(
                place.name,
                config=layout.config(place.name, job.variant),
                seeds=place.dials,
                clock_offset_s=place.clock_offset_s,
            )
        self.truth = Truth(layout.relays)
        self._note_truth()
        for subscription in scenario.subscriptions:
            self._plan_subscription(subscription)
        for flow in scenario.flows:
            self._plan_flow(flow)
        for number, happening in enumerate(self.happenings):
            sim.at(happening.at_s, lambda number=number, what=happening: self._begin(number, what))  # type: ignore[misc]
            if happening.until_s is not None:
                sim.at(happening.until_s, lambda number=number, what=happening: self._end(number, what))  # type: ignore[misc]

    def _plan_trace(self, seed: int) -> None:
        for at, changes in trace_steps(self._scenario, self._layout, seed):
            if at > 0:
                self.sim.at(at, lambda changes=changes: self._replay(changes))  # type: ignore[misc]
            else:
                self._apply(self._disturbances.rebase(changes))

    def _replay(self, changes: dict[Pair, tuple[float | None, float]]) -> None:
        self._apply(self._disturbances.rebase(changes))
        self._note_truth()

    # Traffic

    def _plan_subscription(self, table: Subscription) -> None:
        for peer in self._layout.peers(table.peer):
            for pattern in table.patterns:
                for variant in self._together:
                    self._plan_one(peer, pattern, table, variant)

    def _plan_one(self, peer: str, pattern: str, table: Subscription, variant: str) -> None:
        sim = self.sim

        def begin() -> None:
            if not sim.peer(peer).is_running:
                return
            made = sim.subscribe(peer, _within(variant) + pattern)
            self.subscriptions[variant].append((table.name or peer, made))
            if table.stop_s is not None:
                sim.at(table.stop_s, lambda: end(made))

        def end(made: SimSubscription) -> None:
            if sim.peer(peer).is_running:
                sim.unsubscribe(made)

        if table.start_s > 0:
            sim.at(table.start_s, begin)
        else:
            begin()

    def _plan_flow(self, table: Flow) -> None:
        run = self._scenario.run
        start = run.warmup_s if table.start_s is None else table.start_s
        stop = run.duration_s if table.stop_s is None else min(table.stop_s, run.duration_s)
        for peer in self._layout.peers(table.peer):
            for variant in self._together:
                self.sim.flow(
                    peer,
                    _within(variant) + table.topic,
                    rate=table.rate_per_s,
                    size=table.size_bytes if self._size_bytes is None else self._size_bytes,
                    start=start,
                    stop=stop,
                    deadline_s=(table.deadline_ms or 0.0) / 1e3,
                    variant=Variant(variant) if variant else None,
                )

    # What happens

    def _begin(self, number: int, happening: Happening) -> None:
        sim = self.sim
        if happening.do in LinkHappenings:
            self._apply(self._disturbances.begin(number, happening))
        elif happening.do == "partition":
            sim.partition(*happening.groups)
        elif happening.do == "heal":
            sim.heal()
        for name in happening.peers:
            state = sim.peer(name).state.value
            if happening.do == "crash" and state != "crashed":
                sim.crash(name, reset=happening.reset)
            elif happening.do == "restart" and state == "crashed":
                sim.restart(name)
            elif happening.do == "pause" and state == "running":
                sim.pause(name)
            elif happening.do == "resume" and state == "paused":
                sim.resume(name)
            elif happening.do == "leave" and state == "running":
                sim.leave(name)
        self._note_truth()

    def _end(self, number: int, happening: Happening) -> None:
        sim = self.sim
        if happening.ways:
            self._apply(self._disturbances.end(number, happening))
        elif happening.groups:
            sim.heal()
        for name in happening.peers:
            state = sim.peer(name).state.value
            if happening.do == "crash" and state == "crashed":
                sim.restart(name)
            elif happening.do == "pause" and state == "paused":
                sim.resume(name)
        self._note_truth()

    def _note_truth(self) -> None:
        sim = self.sim
        up, dark = {}, set()
        running = {peer.name for peer in sim.running()}
        for way in self._layout.possible_ways:
            if running.issuperset(way):
                conditions = sim.network.get(*way)
                if conditions.blackhole:
                    dark.add(way)
                elif conditions.loss < 1:
                    up[way] = conditions.delay_s
        self.truth.note(sim.now, up, dark)

    def _apply(self, changed: Changed) -> None:
        for (source, target), conditions in changed.items():
            self.sim.set_conditions(source, target, conditions)


def _within(variant: str) -> str:
    """What stands before the topics of a variant that shares the mesh."""
    return f"{variant}/" if variant else ""
