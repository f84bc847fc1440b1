"""A mesh in which the two fastest ways share a cable, that is cut now and then; in virtual time."""

import random
from collections.abc import Callable
from pathlib import Path

from anabranch.overlay.config import Config
from anabranch.overlay.profiles import Profile
from anabranch.overlay.records import LogRecord
from anabranch.tools.scenarios.recordfiles import RecordFiles
from anabranch.transport.simulator import Conditions, Simulator

RATE = 20.0
LINKS = {
    ("source", "duct-1"): 0.010,
    ("duct-1", "target"): 0.010,
    ("source", "duct-2"): 0.011,
    ("duct-2", "target"): 0.011,
    ("source", "apart"): 0.022,
    ("apart", "target"): 0.022,
}
CABLE = (("duct-1", "target"), ("duct-2", "target"))
PEERS = ("source", "duct-1", "duct-2", "apart", "target")


def cuts(seed: int, seconds: float) -> list[tuple[float, float]]:
    """When the cable is cut: about every 40 s, for 2 to 5 s."""
    rng = random.Random(seed)
    found, at = [], rng.uniform(8, 20)
    while at < seconds - 8:
        lasts = rng.uniform(2, 5)
        found.append((at, at + lasts))
        at += lasts + rng.uniform(20, 50)
    return found


def _mesh(
    seed: int, seconds: float, profile: Profile | None, on_record: Callable[[LogRecord], None] | None
) -> Simulator:
    sim = Simulator(seed, on_record=on_record)
    for number, name in enumerate(PEERS):
        seeds = [other for other in PEERS[:number] if (other, name) in LINKS or (name, other) in LINKS]
        sim.add_peer(name, config=Config(neighbours_target=0, recovery=False), seeds=seeds, profile=profile)
    for (a, b), delay_s in LINKS.items():
        sim.connect(a, b, Conditions(delay_s=delay_s))

    def cut(is_cut: bool) -> Callable[[], None]:
        def act() -> None:
            for a, b in CABLE:
                sim.change(a, b, blackhole=is_cut)

        return act

    for begin, end in cuts(seed, seconds):
        sim.at(begin, cut(True))
        sim.at(end, cut(False))
    return sim


def record_trace(directory: Path, seed: int, seconds: float) -> None:
    """Write what the peers log while the cable is cut now and then, without any traffic."""
    files = RecordFiles(directory, dict.fromkeys(PEERS, 0.0))
    _mesh(seed, seconds, None, files.write).run_until(seconds)
    files.close()


def delivered(seed: int, seconds: float, profile: Profile | None, target: float) -> float:
    """The share of messages that arrive, of a publisher that asks for an availability."""
    sim = _mesh(seed, seconds, profile, None)
    got = sim.subscribe("target", "topic")
    flow = sim.flow("source", "topic", rate=RATE, start=5.0, stop=seconds, availability=target)
    sim.run_until(seconds + 2)
    return len(got.messages) / flow.sent
