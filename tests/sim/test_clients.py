"""Light clients: one link, no routing, and another peer when theirs is gone."""

from anabranch.overlay.config import Config
from anabranch.overlay.qos import Role
from anabranch.transport.simulator import SimSubscription, Simulator

FIXED = Config(neighbours_target=0)
CLIENT = Config(role=Role.CLIENT)


def mesh(*clients: str, seeds: tuple[str, ...] = ("a", "b", "c")) -> Simulator:
    """Three peers and light clients that know these addresses."""
    sim = Simulator(2)
    for number, name in enumerate("abc"):
        sim.add_peer(name, config=FIXED, seeds="abc"[:number])
    for name in clients:
        sim.add_peer(name, config=CLIENT, seeds=seeds)
    assert sim.run_until_true(sim.is_settled, 10)
    return sim


def attached_to(sim: Simulator, client: str) -> str:
    (peer,) = sim.peer(client).node.links.by_peer
    return peer


def has_moved(sim: Simulator, client: str, away_from: str) -> bool:
    links = sim.peer(client).node.links.by_peer
    return bool(links) and away_from not in links


def payloads(inbox: SimSubscription) -> list[object]:
    return [m.payload for m in inbox.messages]


def test_a_client_has_one_link_and_publishes_and_receives_over_it() -> None:
    sim = mesh("x", "y")
    at_peer, at_client = sim.subscribe("c", "up"), sim.subscribe("y", "down")
    sim.run_for(1)
    sim.publish("x", "up", 1)
    sim.publish("b", "down", 2)
    sim.publish("x", "down", 3)
    sim.run_for(1)
    assert payloads(at_peer) == [1]
    assert payloads(at_client) == [2, 3]
    assert at_client.messages[1].path[0] == "x"
    assert len(sim.peer("x").node.links.by_peer) == 1


def test_a_client_moves_to_another_peer_when_its_own_dies() -> None:
    sim = mesh("x")
    inbox = sim.subscribe("x", "t")
    sim.run_for(1)
    first = attached_to(sim, "x")
    sim.crash(first)
    assert sim.run_until_true(lambda: has_moved(sim, "x", first) and sim.is_settled(), 10)
    source = next(name for name in "abc" if name not in (first, attached_to(sim, "x")))
    sim.publish(source, "t", "after the move")
    sim.run_for(1)
    assert payloads(inbox) == ["after the move"]
    sim.publish("x", "t", "by itself")
    sim.run_for(1)
    assert payloads(inbox)[-1] == "by itself"


def test_a_client_moves_to_a_peer_it_was_never_told_of() -> None:
    """It knows one address; the mesh told it of the others."""
    sim = mesh("x", seeds=("a",))
    assert attached_to(sim, "x") == "a"
    sim.run_for(2)
    sim.crash("a")
    assert sim.run_until_true(lambda: has_moved(sim, "x", "a") and sim.is_settled(), 15)
    assert attached_to(sim, "x") in ("b", "c")


def test_moving_costs_messages_of_the_gap_only_and_never_repeats_one() -> None:
    sim = mesh("x")
    inbox = sim.subscribe("x", "t")
    sim.run_for(1)
    first = attached_to(sim, "x")
    source = next(name for name in "abc" if name != first)
    begin = sim.now
    sim.flow(source, "t", rate=100, stop=begin + 12)
    sim.at(begin + 2, lambda: sim.crash(first))
    sim.run_for(14)
    sequences = [m.sequence for m in inbox.messages]
    assert len(sequences) == len(set(sequences))
    assert sequences[-1] == 1199
    assert len(sequences) > 700


def test_what_a_client_loses_takes_its_only_link_again_and_is_given_up_with_it() -> None:
    """Losses in bursts ask for another way, which it does not have."""
    sim = mesh("x")
    first = attached_to(sim, "x")
    inbox = sim.subscribe(next(name for name in "abc" if name != first), "t")
    sim.run_for(1)
    sim.change("x", first, loss=0.3, loss_after_loss=0.8)
    sim.flow("x", "t", rate=4, stop=sim.now + 10)
    sim.run_for(11)
    counters = sim.counters(["x"])
    assert inbox.count == 40
    assert counters["resent"] > 10
    assert "rerouted" not in counters
    sim.publish("x", "t", "under way")
    sim.crash(first, reset=True)
    assert sim.run_until_true(lambda: has_moved(sim, "x", first) and sim.is_settled(), 10)
    sim.publish("x", "t", "again")
    sim.run_for(1)
    assert payloads(inbox)[-1] == "again"


def test_nothing_is_routed_through_a_client() -> None:
    """Its peers are linked over nobody else: they stay apart rather than use the client."""
    sim = Simulator(4)
    sim.add_peer("a", config=FIXED)
    sim.add_peer("b", config=FIXED)
    sim.add_peer("x", config=CLIENT, seeds=["a", "b"])
    inbox = sim.subscribe("b", "t")
    sim.run_for(5)
    sim.publish("a", "t", 1)
    sim.run_for(2)
    assert payloads(inbox) == []
    assert sim.peer("a").node.routes.reachable() <= {"x"}
