"""What peers say about themselves reaches everybody, once is enough, and ends with them."""

from anabranch.overlay.config import Config
from anabranch.overlay.headers import RecordKind
from anabranch.transport.simulator import Simulator

SHORT = Config(neighbours_target=0, record_refresh_s=4.0, record_lifetime_s=10.0, orphan_grace_s=3.0)
FIXED = Config(neighbours_target=0)


def chain(length: int, config: Config = FIXED, seed: int = 1) -> Simulator:
    """p0 - p1 - ... , settled."""
    sim = Simulator(seed)
    for number in range(length):
        sim.add_peer(f"p{number}", config=config, seeds=[f"p{number - 1}"] if number else [])
    assert sim.run_until_true(sim.is_settled, 10)
    return sim


def origins(sim: Simulator, name: str) -> set[str]:
    return set(sim.peer(name).node.book.origins())


def test_records_of_a_peer_that_is_gone_expire_everywhere() -> None:
    sim = chain(4, SHORT)
    sim.subscribe("p3", "t")
    sim.run_for(1)
    assert sim.peer("p0").node.interests.patterns_of("p3") == {"t"}
    sim.crash("p3")
    sim.run_for(2)
    assert "p3" in origins(sim, "p0")  # it may come back
    sim.run_for(5)
    for name in ("p0", "p1", "p2"):
        assert origins(sim, name) == {"p0", "p1", "p2"}
        assert sim.peer(name).node.interests.patterns_of("p3") == frozenset()


def test_records_of_a_living_peer_are_refreshed_and_do_not_expire() -> None:
    sim = chain(3, SHORT)
    sim.run_for(25)
    assert all(origins(sim, name) == {"p0", "p1", "p2"} for name in sim.peers)


def test_a_light_client_forgets_a_gone_peer_by_the_records_lifetime() -> None:
    sim = chain(2, SHORT)
    sim.add_peer("c", config=SHORT.replace(role="client"), seeds=["p0"])
    sim.run_for(2)
    assert origins(sim, "c") >= {"p0", "p1"}
    sim.crash("p1")
    sim.run_for(14)
    assert "p1" not in origins(sim, "c")


def test_digests_bring_two_halves_together_after_a_partition() -> None:
    """Each half subscribed while it was alone: nothing is repeated by its origin, the digests carry it."""
    sim = chain(6)
    sim.partition(["p0", "p1", "p2"], ["p3", "p4", "p5"])
    sim.run_for(5)
    sim.subscribe("p0", "left/news")
    sim.subscribe("p5", "right/news")
    sim.run_for(1)
    assert sim.peer("p5").node.interests.patterns_of("p0") == frozenset()
    told = _interest_record_sequence(sim, "p0")
    sim.heal()
    assert sim.run_until_true(sim.is_settled, 20)
    assert sim.peer("p5").node.interests.patterns_of("p0") == {"left/news"}
    assert sim.peer("p0").node.interests.patterns_of("p5") == {"right/news"}
    assert _interest_record_sequence(sim, "p0") == told


def test_a_quiet_mesh_says_little() -> None:
    """Probes and their echoes, no records: what did not change is not repeated before its refresh."""
    sim = chain(5)
    sim.run_for(5)
    sequences = [_links_record_sequence(sim, name) for name in sim.peers]
    before = sim.control_bytes()
    sim.run_for(20)
    assert [_links_record_sequence(sim, name) for name in sim.peers] == sequences
    assert sim.control_bytes() - before < 20 * 4 * 2 * 4 * 2 * 40  # s, links, ends, probes/s, echo, bytes


def test_a_changed_delay_is_told_without_repeating_the_subscriptions() -> None:
    sim = chain(3)
    sim.run_for(3)
    links = _links_record_sequence(sim, "p1")
    interests = _interest_record_sequence(sim, "p1")
    sim.change("p1", "p2", delay_s=0.08)
    sim.run_for(3)
    assert _links_record_sequence(sim, "p1") > links
    assert _interest_record_sequence(sim, "p1") == interests
    told = sim.peer("p0").node.topology.announced("p1")["p2"].delay_s
    assert 0.05 < told < 0.1


def _interest_record_sequence(sim: Simulator, name: str) -> int:
    return _sequence(sim, name, RecordKind.INTERESTS)


def _links_record_sequence(sim: Simulator, name: str) -> int:
    return _sequence(sim, name, RecordKind.LINKS)


def _sequence(sim: Simulator, name: str, kind: RecordKind) -> int:
    record = sim.peer(name).node.book.get(name, int(kind))
    assert record is not None
    return record.sequence
