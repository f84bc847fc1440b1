"""Table 1 of Hill et al., measured: what replies cost a peer at each depth of a full tree.

Three children each, receivers as leaves only, P different replies, R receivers; in virtual time. Bytes beside
the formulas, which count entries and leave out factors. What the publisher itself keeps is not in `state`.
"""

import random
from collections.abc import Callable

from anabranch.overlay.asking import Protocol
from anabranch.overlay.config import Config
from anabranch.tools.bench.jobs import BenchError
from anabranch.tools.bench.replies.tally import Row
from anabranch.transport.simulator import LATER, Conditions, Simulator

BRANCHING = 3
HEIGHT = 4
FEW, MANY = 8, 10_000
STEP_S = 0.002
DELAY_S = 0.01
SPREAD_S = 0.05
"""Receivers answer at different moments, so that messages meet by merging only."""
TOPIC = "costs"


def cost_rows() -> list[Row]:
    """A row per algorithm and depth: figures per peer, and what Table 1 has for them up to a factor."""
    tree = _Tree()
    rows = []
    for title, protocol, values in (
        ("stateless", Protocol.STATELESS, MANY),
        ("merge, P > R", Protocol.MERGE, MANY),
        ("merge, P <= R", Protocol.MERGE, FEW),
    ):
        rows += _measured(tree, title, protocol, values)
    return rows


def _measured(tree: "_Tree", title: str, protocol: Protocol, values: int) -> list[Row]:
    tree.ask(protocol, values)
    receivers = BRANCHING**HEIGHT
    rows = []
    for depth in range(HEIGHT + 1):
        behind = receivers // BRANCHING**depth
        is_leaf = depth == HEIGHT
        measured = tree.per_peer(depth)
        if protocol is Protocol.STATELESS:
            messages = behind
            size = f"{max(depth, 1)} x {behind}"
            state = f"{HEIGHT}" if is_leaf else "0" if depth else f"{min(values, receivers)}"
            request = f"{depth}"
        else:
            messages = BRANCHING
            size = f"{min(values * BRANCHING, behind)}"
            state = f"{min(values, behind)}"
            request = "1"
        rows.append(
            {
                "algorithm": title,
                "depth": depth,
                "messages": measured["reply_bundles"],
                "O(messages)": 0 if is_leaf else messages,
                "bytes": measured["reply_bytes"],
                "O(bytes)": "0" if is_leaf else size,
                "state": measured["held"],
                "O(state)": state,
                "request": measured["request_bytes"],
                "O(request)": request,
            }
        )
    return rows


class _Tree:
    """A full tree of peers, and what each of them got and held."""

    def __init__(self) -> None:
        self._sim = sim = Simulator(1, check=False, default=Conditions(delay_s=DELAY_S))
        rng = random.Random(1)  # noqa: S311 - must be repeatable
        config = Config(neighbours_target=0)
        self._levels = [["p"]]
        sim.add_peer("p", config=config)
        for _ in range(HEIGHT):
            level = [f"{parent}-{child}" for parent in self._levels[-1] for child in range(BRANCHING)]
            for name in level:
                sim.add_peer(name, config=config, seeds=[name.rpartition("-")[0]])
            self._levels.append(level)
        self._answer_after = [rng.uniform(0, SPREAD_S) for _ in self._levels[-1]]
        for name in self._levels[-1]:
            sim.subscribe(name, TOPIC)
        if not sim.run_until_true(sim.is_settled, 60.0, 0.5):
            raise BenchError("the simulated tree did not form")
        self._held: dict[str, int] = {}
        self._got: dict[str, dict[str, int]] = {}

    def _later(self, name: str, value: int, after_s: float) -> Callable[..., object]:
        sim = self._sim

        def respond(asked: object) -> object:
            peer = sim.peer(name)
            sim.at(sim.now + after_s, lambda: peer.answer(asked, value, sim.now) and None)  # type: ignore[arg-type]
            return LATER

        return respond

    def ask(self, protocol: Protocol, values: int) -> None:
        """One request to all receivers, which give so many different replies."""
        sim = self._sim
        for number, name in enumerate(self._levels[-1]):
            sim.respond(name, self._later(name, number % values, self._answer_after[number]))
        self._held = {}
        before = {name: dict(peer.node.counters) for name, peer in sim.peers.items()}
        harvest = sim.request("p", TOPIC, protocol=protocol, merge="histogram", within_s=10.0)
        while harvest.result is None:
            sim.run_for(STEP_S)
            for name, peer in sim.peers.items():
                self._held[name] = max(self._held.get(name, 0), peer.node.reply_state_bytes)
        if not harvest.result.complete:
            raise BenchError(f"a simulated request by {protocol} was not answered in full")
        sim.run_for(1.0)
        self._got = {
            name: {
                key: peer.node.counters[key] - before[name].get(key, 0)
                for key in ("reply_bundles", "reply_bytes", "request_bytes")
            }
            for name, peer in sim.peers.items()
        }

    def per_peer(self, depth: int) -> Row:
        """Means over the peers of one depth."""
        level = self._levels[depth]
        count = len(level)
        sums = {key: sum(self._got[name][key] for name in level) for key in self._got[level[0]]}
        sums["held"] = sum(self._held.get(name, 0) for name in level)
        return {key: round(total / count, 1) for key, total in sums.items()}
