"""Urgent messages overtake bulk on a link that is too slow for both, in virtual time."""

from anabranch.overlay.config import Config
from anabranch.transport.simulator import Conditions, Simulator

FIXED = Config(neighbours_target=0)
RATE_BYTES_S = 2_000_000
DEADLINE_S = 0.1
SETTLE_S = 1.0


def line(seed: int, *names: str) -> Simulator:
    """Peers in a row; the last link is slow once they know each other."""
    sim = Simulator(seed)
    for before, name in zip((None, *names), names, strict=False):
        sim.add_peer(name, config=FIXED, seeds=[before] if before else [])
    return sim


def run(sim: Simulator, source: str, relay: str, sink: str) -> None:
    urgent, bulk = sim.subscribe(sink, "urgent"), sim.subscribe(sink, "bulk")
    assert sim.run_until_true(sim.is_settled, 10)
    sim.set_conditions(relay, sink, Conditions(rate_bytes_s=RATE_BYTES_S))
    sim.flow(source, "bulk", rate=2 * RATE_BYTES_S / 20_000, size=20_000)
    sim.run_for(SETTLE_S)
    started = sim.now
    flow = sim.flow(source, "urgent", rate=100, size=200, stop=sim.now + 5, deadline_s=DEADLINE_S)
    sim.run_for(6.0)
    took = [message.time - message.published_at for message in urgent.messages]
    assert len(took) == flow.sent == 500
    assert max(took) <= DEADLINE_S
    moved = sum(20_000 for message in bulk.messages if message.time > started)
    assert moved > 0.8 * RATE_BYTES_S * (sim.now - started), "what is left of the link is for the bulk"
    sequences = [message.sequence for message in bulk.messages]
    assert sequences == sorted(sequences)


def test_urgent_messages_make_their_deadline_over_a_saturated_link() -> None:
    run(line(1, "a", "b"), "a", "a", "b")


def test_a_relay_lets_urgent_messages_overtake_as_well() -> None:
    run(line(2, "a", "b", "c"), "a", "b", "c")


def test_bulk_moves_on_when_urgent_messages_alone_are_too_many() -> None:
    sim = line(3, "a", "b")
    bulk = sim.subscribe("b", "bulk")
    sim.subscribe("b", "urgent")
    assert sim.run_until_true(sim.is_settled, 10)
    sim.set_conditions("a", "b", Conditions(rate_bytes_s=RATE_BYTES_S))
    sim.flow("a", "bulk", rate=200, size=10_000)
    sim.flow("a", "urgent", rate=400, size=10_000, deadline_s=DEADLINE_S)
    sim.run_for(10.0)
    assert bulk.count * 10_000 > RATE_BYTES_S * 10 / 10
