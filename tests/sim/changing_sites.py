"""Sites that change all the time while messages select some of them, held against an oracle of its own.

As a program it repeats that with very many sites: `python tests/sim/changing_sites.py --meshes 5 --seeds 40`.
Making a mesh of 1,000 takes a minute, so the seeds of one mesh go on from what the one before left.
"""

import argparse
import gc
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from anabranch.overlay.codec import Frame, decode_selected, decode_subtree, decode_tail
from anabranch.overlay.config import Config
from anabranch.overlay.headers import BUNDLE_HEADER, PATH_MAX_PEERS, Flag
from anabranch.transport.simulator import Conditions, Simulator
from anabranch.transport.simulator.ledger import Delivery
from anabranch.transport.simulator.metering import Meter

Attributes = dict[str, Any]
Link = tuple[str, str]

ISLAND = 25
"""So many sites come together first, which costs less than if all did at once."""
DELAY_S = 0.005
DEEPEST = PATH_MAX_PEERS // 2
"""Peers from the root to a site at most: no way is then longer than a message may travel."""
SLACK_S = 0.05
"""Beyond the delays of the longest way, until everybody has heard of a change, and a message has arrived."""
FAULT_S = 0.4
RECOVERED_S = 1.5
"""After a fault everything is as before."""
SETTLE_S = 1.0
REFRESH_S = 1000.0
"""Nobody repeats its records in this time: a thousand sites that do cost more than all the seeds."""

SELECTIONS: dict[str, Callable[[Attributes], bool]] = {
    "load > 0.7": lambda row: row.get("load", 0) > 0.7,
    "region in ('r1', 'r2') and not (load < 0.5)": lambda row: (
        row.get("region") in ("r1", "r2") and not row.get("load", 1) < 0.5
    ),
    "load < 0.2 or load > 0.9": lambda row: "load" in row and not 0.2 <= row["load"] <= 0.9,
    "tags intersects {'a'} and tags not superset {'b'}": lambda row: (
        "a" in row.get("tags", ()) and "b" not in row["tags"]
    ),
    "not up or load + reserve > 1.4": lambda row: (
        not row.get("up") or row.get("load", -2) + row.get("reserve", -2) > 1.4
    ),
    "not exists(load) or region = 'r3'": lambda row: "load" not in row or row.get("region") == "r3",
    "load between 0.4 and 0.45 and reserve != 0.5": lambda row: (
        0.4 <= row.get("load", 0) <= 0.45 and row.get("reserve", 0.5) != 0.5
    ),
}


def random_attributes(rng: random.Random) -> Attributes:
    row: Attributes = {
        "load": round(rng.random(), 3),
        "reserve": round(rng.random(), 3),
        "region": f"r{rng.randrange(5)}",
        "up": rng.random() < 0.8,
        "tags": rng.sample("abc", rng.randint(0, 3)),
    }
    return {name: value for name, value in row.items() if rng.random() < 0.95}


class Sent:
    """One message: what was asked, and what came of it."""

    def __init__(self, payload: str, source: str, at: float, to: str, level: int) -> None:
        self.payload = payload
        self.source = source
        self.at = at
        self.to = to
        self.level = level
        self.got: dict[str, float] = {}
        """Who delivered it, and when."""
        self.links: list[tuple[str, frozenset[str]]] = []
        """The peers that it was sent to, each with those that were to deliver it there and behind."""


class SeenLinks(Meter):
    """Notes every bundle that leaves for a next peer with its message; in a tree the peer names the link."""

    def __init__(self, sent: dict[str, Sent]) -> None:
        super().__init__()
        self._sent = sent

    def note(self, target: str, frames: Sequence[Frame], size: int) -> None:
        del size
        head = frames[0]
        if not BUNDLE_HEADER.unpack_from(head)[2] & Flag.SELECTED:
            return
        body_at = BUNDLE_HEADER.size + int.from_bytes(head[4:8])
        tail = decode_tail(bytes(head[BUNDLE_HEADER.size : body_at]))
        receivers = {target} if tail.deliver else set()
        pending = list(tail.branches)
        while pending:
            peer, raw = pending.pop()
            below = decode_subtree(raw)
            if below.deliver:
                receivers.add(peer)
            pending += below.branches
        for run in decode_selected([head[body_at:]]):
            for payload in run.payloads:
                assert isinstance(payload, str)
                self._sent[payload].links.append((target, frozenset(receivers)))


class ChangingSites:
    """A tree of sites; `begin` gives it a seed of its own, `run` lets things happen, `check` judges them."""

    def __init__(self, mesh: int, sites: int) -> None:
        self.mesh = self.name = f"mesh {mesh} of {sites}"
        self.rng = rng = random.Random(f"sites/{mesh}")
        self.sim = sim = Simulator(
            mesh, check=sites <= 100, keep_messages=False, default=Conditions(delay_s=DELAY_S)
        )
        self.names = names = [f"p{number}" for number in range(sites)]
        islands = [names[at : at + ISLAND] for at in range(0, sites, ISLAND)]
        self.parent: dict[str, str] = {}
        for number, members in enumerate(islands):
            for index, name in enumerate(members):
                before = members[:index] or (rng.choice(islands[:number]) if number else [])
                if before:
                    self.parent[name] = rng.choice(before)
                    if len(self._to_root(name)) > DEEPEST:
                        self.parent[name] = rng.choice(islands[0])
        self.flooded_s = 2 * max(len(self._to_root(name)) for name in names) * DELAY_S + SLACK_S
        self.history: dict[str, list[tuple[float, Attributes]]] = {name: [] for name in names}
        self.least = {name: rng.choice((0, 0, 2)) for name in names}
        """The level of the messages that each site's filter lets pass."""
        self.sent: dict[str, Sent] = {}
        self.faults: list[tuple[float, float, set[str]]] = []
        """From when until when the ways over these sites' links to their parents are not to be relied on."""
        self.changes = 0
        config = Config(neighbours_target=0, record_refresh_s=REFRESH_S, record_lifetime_s=3 * REFRESH_S)
        for name in names:
            sim.add_peer(name, config=config, seeds=[self.parent[name]] if name in self.parent else [])
            where = f"level >= {self.least[name]}" if self.least[name] else None
            sim.subscribe(name, "@site", where=where, callback=partial(self._delivered, name))
            self.change(name)
        sim.partition(*islands)
        sim.run_for(1.0)
        sim.heal()
        assert sim.run_until_true(sim.is_settled, 30.0, every_s=0.5)
        sim.run_for(SETTLE_S)

    def begin(self, seed: int) -> None:
        """From here on everything random depends on the seed too, and only what happens now is judged."""
        self.name = f"{self.mesh}, seed {seed}"
        self.rng = random.Random(self.name)
        self.sim._engine.network_rng.seed(f"{self.name}/network")
        self.sent.clear()
        self.faults.clear()
        self.history = {name: rows[-1:] for name, rows in self.history.items()}
        self.changes = 0
        self._refused = self._refusals()
        self.sim._engine.meter = SeenLinks(self.sent)

    def run(self, messages: int, changes: int, faults: int, seconds: float) -> None:
        """Messages and changes at random times; faults in the first third of the time."""
        sim, rng, begin = self.sim, self.rng, self.sim.now
        for number in range(messages):
            sim.at(begin + rng.random() * seconds, partial(self.publish, f"m{number}"))
        for _ in range(changes):
            sim.at(begin + rng.random() * seconds, partial(self.change, rng.choice(self.names)))
        for name in rng.sample(self.names[1:], faults):
            sim.at(begin + rng.random() * seconds / 3, partial(self._disturb, name))
        sim.run_for(seconds + self.flooded_s + (RECOVERED_S if faults else 0.0))

    def change(self, name: str) -> None:
        """A site becomes something else."""
        if self.history[name] and not self.sim.peer(name).is_running:
            return
        attributes = random_attributes(self.rng)
        self.history[name].append((self.sim.now, attributes))
        self.sim.set_attributes(name, attributes)
        self.changes += 1

    def publish(self, payload: str) -> None:
        """Some site publishes to some of the sites."""
        source, to, level = (
            self.rng.choice(self.names),
            self.rng.choice(list(SELECTIONS)),
            self.rng.randrange(4),
        )
        if self.sim.peer(source).is_running:
            self.sent[payload] = Sent(payload, source, self.sim.now, to, level)
            self.sim.publish(source, "@site", payload, attributes={"level": level}, to=to)

    def _delivered(self, name: str, delivery: Delivery) -> None:
        message = self.sent[str(delivery.payload)]
        assert name not in message.got, f"{self.name}: {name} got {message.payload} twice"
        message.got[name] = delivery.time
        row = self.history[name][-1][1]
        assert SELECTIONS[message.to](row), (
            f"{self.name}: {name} with {row} got {message.payload} for {message.to}"
        )
        assert message.level >= self.least[name], f"{self.name}: {name} got {message.payload} past its filter"

    def _disturb(self, name: str) -> None:
        sim, now = self.sim, self.sim.now
        over: set[str] = {name}
        kind = self.rng.choice(("crash", "pause", "slow"))
        if kind == "crash":
            over |= {child for child, parent in self.parent.items() if parent == name}
            sim.crash(name, reset=self.rng.random() < 0.5)
            sim.at(now + FAULT_S, partial(sim.restart, name))
        elif kind == "pause":
            over |= {child for child, parent in self.parent.items() if parent == name}
            sim.pause(name)
            sim.at(now + FAULT_S, partial(sim.resume, name))
        else:
            sim.change(name, self.parent[name], delay_s=8 * DELAY_S)
            sim.at(now + FAULT_S, partial(sim.change, name, self.parent[name], delay_s=DELAY_S))
        self.faults.append((now - self.flooded_s, now + FAULT_S + RECOVERED_S, over))

    # What must hold

    def check(self) -> dict[str, int]:
        """AssertionError unless all and only the matching sites got each message, over links to them."""
        pairs = strict = used = idle = 0
        for message in self.sent.values():
            faults = [fault for fault in self.faults if fault[0] <= message.at < fault[1]]
            disturbed = set().union(*(over for _, _, over in faults))
            heard = min((since for since, _, _ in faults), default=message.at) - self.flooded_s
            may: set[str] = set()
            wanted: set[str] = set()
            for name in self.names:
                if message.level < self.least[name]:
                    continue
                way, turn = self.way(message.source, name)
                is_disturbed = bool((way | {name, message.source}) & disturbed)
                held = self._held(name, message, heard if is_disturbed else message.at - self.flooded_s)
                if any(held):
                    may.add(name)
                    wanted |= way | {turn}
                if all(held) and not is_disturbed:
                    strict += 1
                    assert name in message.got, (
                        f"{self.name}: {name} matched {message.to!r} throughout and missed {message.payload}"
                    )
            for target, receivers in message.links:
                assert receivers, (
                    f"{self.name}: {message.payload} went to {target}, and nobody was to deliver it"
                )
                assert receivers <= may, (
                    f"{self.name}: {message.payload} went to {receivers - may}: never matched"
                )
                assert target in wanted - {message.source}, (
                    f"{self.name}: nobody behind {target} matched {message.to!r}"
                )
            targets = [target for target, _ in message.links]
            if not disturbed:
                assert len(targets) == len(set(targets)), f"{self.name}: {message.payload} twice over a link"
            pairs += len(message.got)
            used += len(set(targets))
            idle += len(self.names) - 1 - len(set(targets))
        return {
            "messages": len(self.sent),
            "changes": self.changes,
            "faults": len(self.faults),
            "delivered": pairs,
            "matched_throughout": strict,
            "links_used": used,
            "links_idle": idle,
            "refused_at_the_site": self._refusals() - self._refused,
        }

    def _refusals(self) -> int:
        return self.sim.counters().get("dropped.not_selected", 0)

    def _held(self, name: str, message: Sent, begin: float) -> list[bool]:
        """Whether a site matched, by all that it was from a time on until the message came."""
        matches, history = SELECTIONS[message.to], self.history[name]
        end = message.got.get(name, message.at + self.flooded_s)
        states = [row for since, row in history if since <= begin][-1:]
        states += [row for since, row in history if begin < since <= end]
        return [matches(row) for row in states]

    def way(self, source: str, receiver: str) -> tuple[set[str], str]:
        """The sites on the way, each for its link towards the root, and the one where the way turns."""
        up, down = self._to_root(source), self._to_root(receiver)
        turn = ""
        while up and down and up[-1] == down[-1]:
            turn = up.pop()
            down.pop()
        return {*up, *down}, turn

    def _to_root(self, name: str) -> list[str]:
        path = [name]
        while path[-1] in self.parent:
            path.append(self.parent[path[-1]])
        return path


def main() -> int:
    """How many runs broke a promise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first-mesh", type=int, default=0)
    parser.add_argument("--meshes", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=40, help="per mesh")
    parser.add_argument("--sites", type=int, default=1000)
    parser.add_argument("--messages", type=int, default=20)
    parser.add_argument("--changes", type=int, default=40)
    parser.add_argument("--fault-every", type=int, default=4, help="this many runs of a mesh have a fault")
    parser.add_argument("--seconds", type=float, default=0.8)
    options = parser.parse_args()
    broken = 0
    for number in range(options.first_mesh, options.first_mesh + options.meshes):
        mesh = ChangingSites(number, options.sites)
        gc.freeze()
        for seed in range(options.seeds):
            begin = time.process_time()
            mesh.begin(seed)
            try:
                has_fault = seed % options.fault_every == 0
                mesh.run(options.messages, options.changes, int(has_fault), options.seconds)
                found: dict[str, Any] = dict(mesh.check())
            except AssertionError as error:
                found = {"broken": str(error)}
                broken += 1
            found["cpu_s"] = round(time.process_time() - begin, 1)
            print(json.dumps({"mesh": number, "sites": options.sites, "seed": seed, **found}), flush=True)
    return broken


if __name__ == "__main__":
    sys.exit(main())
