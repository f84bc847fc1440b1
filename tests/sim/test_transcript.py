"""One small scenario, written down: whoever changes the protocol's behaviour sees it here, line by line.

`REWRITE_TRANSCRIPT=1 python -m pytest tests/sim/test_transcript.py` writes it anew; review the difference.
"""

import os
from pathlib import Path

from anabranch.overlay.config import Config
from anabranch.overlay.records import DeliveryRecord, LinkRecord, LogRecord, RouteRecord
from anabranch.transport.simulator import Conditions, Simulator

TRANSCRIPT = Path(__file__).with_name("failing_link.transcript.txt")


def test_a_failing_link_goes_as_written_down() -> None:
    lines = transcript()
    if os.environ.get("REWRITE_TRANSCRIPT"):
        TRANSCRIPT.write_text("\n".join(lines) + "\n")
    assert lines == TRANSCRIPT.read_text().splitlines()


def transcript() -> list[str]:
    """Three peers, a flow from a to c, a link that fails and returns, and a peer that crashes and returns."""
    lines: list[str] = []
    sim = Simulator(1, default=Conditions(delay_s=0.01), on_record=lambda record: note(record))

    def note(record: LogRecord) -> None:
        text = told(record)
        if text:
            lines.append(f"{sim.now:7.3f} {record.peer}  {text}")

    def happens(at: float, what: str, *arguments: str, **changes: object) -> None:
        def act() -> None:
            lines.append(f"{sim.now:7.3f} -- {what} {' '.join(arguments)} {changes or ''}".rstrip())
            getattr(sim, what)(*arguments, **changes)

        sim.at(at, act)

    for number, name in enumerate("abc"):
        sim.add_peer(name, config=Config(neighbours_target=0), seeds="abc"[:number])
    sim.subscribe("c", "t")
    sim.flow("a", "t", rate=4, start=0.5, stop=9.5)
    happens(2.0, "change", "a", "c", blackhole=True)
    happens(5.0, "change", "a", "c", blackhole=False)
    happens(7.0, "crash", "b")
    happens(8.0, "restart", "b")
    sim.run_until(12.0)
    return lines


def told(record: LogRecord) -> str:
    """A record in words; probes and counters would drown the rest."""
    if isinstance(record, LinkRecord):
        return f"link to {record.neighbour} {record.state}: {record.cause}"
    if isinstance(record, RouteRecord):
        path = " > ".join(record.path) or "none"
        return f"path to {record.destination} {path}, {record.cost_us / 1000:.1f} ms: {record.cause}"
    if isinstance(record, DeliveryRecord):
        path = " > ".join(record.path)
        return (
            f"got {record.topic} {record.seq} x{record.count} after {record.age_us / 1000:.1f} ms by {path}"
        )
    return ""
