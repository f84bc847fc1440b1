"""Hop by hop: what a link loses is sent again, and what it held when it died takes another way."""

import pytest

from anabranch.overlay.config import Config
from anabranch.overlay.qos import Variant
from anabranch.transport.simulator import Conditions, SimSubscription, Simulator

RECOVERING = [Variant.BP, Variant.BP_QOS, Variant.BP_QOS_MP, Variant.ADAPTIVE]


def mesh(links: dict[str, float], seed: int = 5, **changes: object) -> Simulator:
    """Peers of one letter with these links (two letters each) and delays."""
    sim = Simulator(seed)
    config = Config(neighbours_target=0).replace(**changes)
    for link, delay_s in links.items():
        sim.connect(link[0], link[1], Conditions(delay_s=delay_s))
    names = sorted(set("".join(links)))
    for name in names:
        seeds = [other for other in names if other < name and other + name in links]
        sim.add_peer(name, config=config, seeds=seeds)
    assert sim.run_until_true(sim.is_settled, 10)
    return sim


def flow(
    sim: Simulator, seconds: float, source: str = "a", sink: str = "d", deadline_s: float = 0.0
) -> SimSubscription:
    inbox = sim.subscribe(sink, "t")
    sim.run_for(3)
    sim.flow(source, "t", rate=100, stop=sim.now + seconds - 0.005, deadline_s=deadline_s)
    sim.run_for(seconds + 2)
    return inbox


def numbers(inbox: SimSubscription) -> list[int]:
    return [message.sequence for message in inbox.messages]


SQUARE = {"ab": 0.01, "bd": 0.01, "ac": 0.015, "cd": 0.015}


@pytest.mark.parametrize("variant", RECOVERING)
@pytest.mark.parametrize("deadline_s", [0.0, 0.05])
@pytest.mark.parametrize("broken", ["ab", "bd"])
def test_nothing_is_lost_with_a_link_as_long_as_another_way_leads_on(
    variant: Variant, deadline_s: float, broken: str
) -> None:
    """The publisher's own link dies, or one behind a relay, and nobody is told."""
    sim = mesh(SQUARE, variant=variant)
    sim.at(sim.now + 5, lambda: sim.change(*broken, blackhole=True))
    inbox = flow(sim, 6, deadline_s=deadline_s)
    assert inbox.messages[0].path == ("a", "b", "d")
    assert inbox.messages[-1].path == ("a", "c", "d")
    assert numbers(inbox) == list(range(600)), "each one, once, in order"
    assert sim.counters()["rerouted"] > 10


def test_the_only_way_on_may_lead_back() -> None:
    """a reaches c best through b; when b loses c, what b still holds goes back to a and from there to c."""
    sim = mesh({"ab": 0.01, "bc": 0.01, "ac": 0.06})
    sim.at(sim.now + 5, lambda: sim.change("b", "c", blackhole=True))
    inbox = flow(sim, 6, sink="c")
    assert inbox.messages[0].path == ("a", "b", "c")
    assert ("a", "b", "a", "c") in {message.path for message in inbox.messages}
    assert numbers(inbox) == list(range(600))


def test_a_repair_turns_back_no_more_often_than_its_peers_accept() -> None:
    """Both ways to c die at once, and a and b hope for each other's until they are told. What went from a to
    b, back to a and to b again ends there, counted as lost and not as broken."""
    sim = mesh({"ab": 0.01, "bc": 0.01, "ac": 0.06})
    sim.at(sim.now + 5, lambda: sim.change("b", "c", blackhole=True))
    sim.at(sim.now + 5, lambda: sim.change("a", "c", blackhole=True))
    flow(sim, 6, sink="c")
    counters = sim.counters()
    assert counters["rerouted"] > 0
    assert counters.get("dropped.malformed", 0) == 0


def test_without_another_way_the_loss_is_counted_and_the_order_kept() -> None:
    sim = mesh({"ab": 0.01, "bd": 0.01})
    sim.at(sim.now + 5, lambda: sim.change("b", "d", blackhole=True))
    sim.at(sim.now + 8, lambda: sim.change("b", "d", blackhole=False))
    inbox = flow(sim, 8)
    received = numbers(inbox)
    assert received == sorted(set(received))
    counters = sim.counters()
    told = counters["dropped.unrecovered"] + counters["dropped.no_route"] + counters["dropped.no_link"]
    assert 0 < 800 - len(received) <= told


@pytest.mark.parametrize("loss", [0.01, 0.1, 0.3])
def test_what_a_lossy_link_drops_is_sent_again(loss: float) -> None:
    sim = mesh({"ab": 0.02})
    sim.change("a", "b", loss=loss)
    inbox = flow(sim, 20, sink="b")
    assert numbers(inbox) == sorted(set(numbers(inbox)))
    assert 1 - inbox.count / 2000 < loss / 10
    assert sim.counters(["a"])["resent"] > 0.5 * loss * 2000


def test_the_last_message_of_all_is_not_forgotten() -> None:
    """Nothing follows that would show the gap: the publisher's peer misses the acknowledgement."""
    sim = mesh({"ab": 0.02})
    inbox = sim.subscribe("b", "t")
    sim.run_for(3)
    sim.change("a", "b", loss=1.0)
    sim.publish("a", "t", b"last words")
    sim.run_for(0.05)
    sim.change("a", "b", loss=0.0)
    sim.run_for(1)
    assert inbox.count == 1


def test_behind_a_relay_a_gap_is_held_for_what_the_first_link_sends_again() -> None:
    sim = mesh({"ab": 0.01, "bd": 0.01})
    sim.change("a", "b", loss=0.1)
    inbox = flow(sim, 10)
    assert numbers(inbox) == sorted(set(numbers(inbox)))
    assert 1 - inbox.count / 1000 < 0.01


def test_reordered_frames_are_put_in_order() -> None:
    sim = mesh({"ab": 0.01})
    sim.change("a", "b", reorder=0.2)
    inbox = flow(sim, 5, sink="b")
    assert numbers(inbox) == list(range(500))


def test_a_sound_link_sends_nothing_twice_and_costs_few_acknowledgements() -> None:
    quiet, busy = mesh({"ab": 0.01}), mesh({"ab": 0.01})
    before = quiet.control_bytes()
    quiet.run_for(15)
    idle_bytes = quiet.control_bytes() - before
    before = busy.control_bytes()
    flow(busy, 10, sink="b")
    assert "resent" not in busy.counters()
    assert (busy.control_bytes() - before - idle_bytes) / 10 < 20 * 18 + 200


def test_a_dead_link_is_left_before_a_probe_could_tell() -> None:
    """The next acknowledgement does not come: long before the silence limit, the flow moves."""
    sim = mesh(SQUARE, recovery_max_s=2.0)
    inbox = sim.subscribe("d", "t")
    sim.run_for(3)
    sim.flow("a", "t", rate=100)
    sim.run_for(2)
    died_at = sim.now
    sim.change("a", "b", blackhole=True)
    sim.run_for(2)
    moved_at = min(m.published_at for m in inbox.messages if m.path == ("a", "c", "d") and m.age_s < 0.05)
    assert moved_at - died_at < 0.3


@pytest.mark.parametrize("seed", range(10))
def test_links_that_die_one_after_another_cost_nothing_while_a_path_stands(seed: int) -> None:
    """A full mesh of five; every three seconds another link dies, and comes back two seconds later."""
    names = "abcde"
    links = {
        a + b: 0.005 + 0.003 * ((ord(a) * 7 + ord(b) * 3 + seed) % 7) for a in names for b in names if a < b
    }
    sim = mesh(links, seed=seed)
    for number, link in enumerate(list(links)):
        at = sim.now + 5 + 3 * number
        sim.at(at, lambda link=link: sim.change(link[0], link[1], blackhole=True))  # type: ignore[misc]
        sim.at(at + 2, lambda link=link: sim.change(link[0], link[1], blackhole=False))  # type: ignore[misc]
    inbox = flow(sim, 35, source="a", sink="e")
    assert numbers(inbox) == list(range(3500))


def test_what_two_relays_repair_one_after_the_other_is_waited_for() -> None:
    """c-e and the way around it die together: c's repair runs into b-e, which b has to notice by itself."""
    links = {"ac": 0.01, "ce": 0.01, "bc": 0.01, "be": 0.012, "ad": 0.01, "de": 0.02, "cd": 0.04}
    sim = mesh(links)
    for dying in ("ce", "be"):
        sim.at(sim.now + 5, lambda link=dying: sim.change(*link, blackhole=True))  # type: ignore[misc]
    inbox = flow(sim, 6, sink="e", deadline_s=0.05)
    assert inbox.messages[0].path == ("a", "c", "e")
    assert inbox.messages[-1].path == ("a", "d", "e")
    assert any(len(message.path) > 4 for message in inbox.messages), "repaired twice"
    assert numbers(inbox) == list(range(600))


def test_acknowledgements_alone_show_a_dead_link_where_nothing_is_repaired() -> None:
    sim = mesh(SQUARE, recovery=False)
    died_at = sim.now + 5
    sim.at(died_at, lambda: sim.change("a", "b", blackhole=True))
    inbox = flow(sim, 6, deadline_s=0.05)
    lost = 600 - inbox.count
    assert 5 < lost < 30
    assert sim.counters().get("rerouted", 0) == sim.counters().get("resent", 0) == 0


def test_urgent_flows_alone_are_not_acknowledged_one_by_one() -> None:
    quiet, busy = mesh({"ab": 0.01}), mesh({"ab": 0.01})
    before = quiet.control_bytes()
    quiet.run_for(15)
    idle_bytes = quiet.control_bytes() - before
    before = busy.control_bytes()
    flow(busy, 10, sink="b", deadline_s=0.05)
    assert (busy.control_bytes() - before - idle_bytes) / 10 < 20 * 18 + 200


def test_bursts_of_losses_are_repaired_by_another_way_and_not_by_copies_or_a_storm_of_news() -> None:
    """What is sent again at once over a link that loses in bursts would mostly be lost too."""
    names = "abcdef"
    sim = Simulator(7, check=False, default=Conditions(delay_s=0.03))
    for number, name in enumerate(names):
        sim.add_peer(name, config=Config(neighbours_target=0), seeds=names[:number])
    inboxes = {name: sim.subscribe(name, "*") for name in names}
    assert sim.run_until_true(sim.is_settled, 10)
    sim.run_for(3)
    sim.set_default(Conditions(delay_s=0.03, loss=0.03, loss_after_loss=0.8))
    told, sent = sim.control_bytes(), sim.bundles_sent()
    for number, name in enumerate(names):
        sim.flow(name, name, rate=2, start=sim.now + number / 12, stop=sim.now + 60)
    sim.run_for(65)
    put = sum(inbox.count for inbox in inboxes.values()) / len(names)
    assert sum(inbox.count for inbox in inboxes.values()) >= 0.9995 * 60 * 2 * len(names) ** 2
    assert sim.counters()["rerouted"] > 160
    assert sim.bundles_sent() - sent <= 1.5 * put * (len(names) - 1)
    assert (sim.control_bytes() - told) / 65 / len(names) <= 6000


def test_where_bundles_answer_bundles_soon_enough_nothing_is_acknowledged_separately() -> None:
    sim = Simulator(1, default=Conditions(delay_s=0.005))
    sim.add_peer("a", config=Config(neighbours_target=0))
    sim.add_peer("b", config=Config(neighbours_target=0), seeds=["a"])
    sim.subscribe("b", "q")
    assert sim.run_until_true(sim.is_settled, 10)
    sim.run_for(2)
    before = sim.counters().get("sent.ack_bytes", 0)
    for _ in range(100):
        sim.request("a", "q")
        sim.run_for(0.03)
    assert sim.counters().get("sent.ack_bytes", 0) == before
    sim.run_for(0.05)
    assert sim.counters()["sent.ack_bytes"] > before, "the last one is, after `ack_delay_s`"
