"""The same mesh in virtual time, over the delays of a recorded network: what distance alone costs."""

import random
from collections.abc import Callable, Sequence
from math import isnan
from pathlib import Path

from anabranch.overlay.asking import Protocol
from anabranch.overlay.config import Config
from anabranch.overlay.errors import UsageError
from anabranch.tools.bench.jobs import BenchError
from anabranch.tools.bench.replies.layout import PEERS, Plan, load_topic, topic_of, tree
from anabranch.tools.bench.replies.tally import Row, Run, milliseconds, row_of
from anabranch.transport.simulator import Conditions, Simulator

WITHIN_S = 30.0
SETTLE_LIMIT_S = 120.0
PAUSE_S = 0.2
"""Virtual time between two requests."""
VALUES = 10


def recorded(path: Path, seed: int) -> tuple[Plan, list[list[float]]]:
    """Fifty places of a recorded network, drawn by seed, in a tree; one-way delays by place in it."""
    try:
        from anabranch.tools.traces.reading import load_trace
    except ImportError:
        raise UsageError("--delays needs NumPy: pip install 'anabranch[replay]'") from None
    trace = load_trace(path)
    names = trace.choose(PEERS, seed)
    known = {(a, b): float(trace.delays_s[0, trace.index(a), trace.index(b)]) for a in names for b in names}
    delays = [[_delay(known, names, a, b) for b in names] for a in names]
    plan = tree(names, delays)
    places = [names.index(name) for name in plan.names]
    return Plan([_as_name(name) for name in plan.names], plan.parents), [
        [delays[a][b] for b in places] for a in places
    ]


def simulated_rows(
    plan: Plan,
    delays_s: list[list[float]],
    scenarios: dict[str, dict[int, int]],
    protocols: Sequence[str],
    load: float,
    runs: int,
    tau_s: float,
    tell: Callable[[Row], None],
) -> list[Row]:
    """A row for each scenario and protocol, with the round trip to the slowest site beside."""
    sim = _mesh(plan, delays_s, scenarios)
    if load:
        for number, name in enumerate(plan.names):
            _Loader(sim, name, number, load).next()
    rows = []
    for scenario, repliers in scenarios.items():
        expected = sum(repliers.values())
        slowest_s = max(delays_s[0][site] + delays_s[site][0] for site in repliers)
        taken: dict[str, list[Run]] = {protocol: [] for protocol in protocols}
        for _ in range(runs):
            for protocol in protocols:
                taken[protocol].append(_run(sim, plan.names[0], topic_of(scenario), protocol, tau_s))
        for protocol, each in taken.items():
            row = row_of(scenario, protocol, load, expected, each)
            row["system"] = "simulated"
            row["repliers"] = expected
            row["children"] = plan.children(0)
            row["slowest_round_trip_ms"] = milliseconds(slowest_s)
            row["times_slowest"] = (
                round(row["p99_ms"] / row["slowest_round_trip_ms"], 3) if slowest_s else None
            )
            rows.append(row)
            tell(row)
    return rows


def _mesh(plan: Plan, delays_s: list[list[float]], scenarios: dict[str, dict[int, int]]) -> Simulator:
    sim = Simulator(1, check=False, keep_messages=False)
    for a, source in enumerate(plan.names):
        for b, target in enumerate(plan.names):
            if a != b:
                sim.set_conditions(source, target, Conditions(delay_s=delays_s[a][b]))
    config = Config(neighbours_target=0)
    for number, name in enumerate(plan.names):
        parent = plan.parents[number]
        sim.add_peer(name, config=config, seeds=[plan.names[parent]] if parent >= 0 else [])
        for scenario, repliers in scenarios.items():
            for _ in range(repliers.get(number, 0)):
                sim.subscribe(name, topic_of(scenario))
        sim.subscribe(name, load_topic(number))
        sim.respond(name, lambda asked, number=number: (number + asked.subscriber) % VALUES)  # type: ignore[misc]
    if not sim.run_until_true(sim.is_settled, SETTLE_LIMIT_S, 0.5):
        raise BenchError(f"the simulated mesh did not form within {SETTLE_LIMIT_S:.0f} s of virtual time")
    return sim


def _run(sim: Simulator, origin: str, topic: str, protocol: str, tau_s: float) -> Run:
    how = Protocol(protocol)
    before = sim.counters([origin]).get("reply_bundles", 0)
    harvest = sim.request(
        origin,
        topic,
        protocol=how,
        merge="histogram" if how is Protocol.MERGE else "",
        within_s=WITHIN_S,
        tau_s=0.0 if how.is_repaired else tau_s,
    )
    if not sim.run_until_true(lambda: harvest.result is not None, WITHIN_S + 1.0):
        raise BenchError(f"a simulated request by {protocol} did not end")
    result = harvest.result
    assert result is not None
    messages = sim.counters([origin]).get("reply_bundles", 0) - before
    sim.run_for(PAUSE_S)
    begun = harvest.asked_at
    times = [] if how is Protocol.MERGE else [time - begun for time in harvest.times]
    return Run(harvest.over_at - begun, times, result.answered, result.complete, messages)


class _Loader:
    """Random traffic from one peer."""

    def __init__(self, sim: Simulator, name: str, seed: int, rate: float) -> None:
        self._sim = sim
        self._name = name
        self._rng = random.Random(seed)  # noqa: S311 - must be repeatable
        self._rate = rate

    def next(self) -> None:
        """Schedule the next message."""
        self._sim.at(self._sim.now + self._rng.expovariate(self._rate), self._publish)

    def _publish(self) -> None:
        self._sim.publish(self._name, load_topic(self._rng.randrange(1000)), b"load" * 16)
        self.next()


def _delay(known: dict[tuple[str, str], float], names: list[str], a: str, b: str) -> float:
    """Of a pair that was not measured: the other way round, or by the best relay."""
    if a == b:
        return 0.0
    for delay in (known[a, b], known[b, a]):
        if not isnan(delay):
            return delay
    ways = [known[a, by] + known[by, b] for by in names if by not in (a, b)]
    return min(way for way in ways if not isnan(way))


def _as_name(node: str) -> str:
    """A peer's name out of a node's."""
    return "city-" + "".join(char if char.isalnum() else "-" for char in node)
