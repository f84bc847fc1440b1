"""What a peer tells about itself and when; what it makes of what others tell; how it forgets."""

import pytest
from support_nodes import Driver, Mesh, links_record, record, wants_record

from anabranch.overlay.actions import Dial, SubscribersChanged
from anabranch.overlay.codec import decode_interests, decode_links, decode_roles, encode_echo, encode_probe
from anabranch.overlay.config import Config
from anabranch.overlay.errors import UsageError
from anabranch.overlay.headers import Kind, LinkEntry, RecordKind, RolesBody
from anabranch.overlay.identifiers import LinkId
from anabranch.overlay.qos import LinkState, Role

STATIC = Config(neighbours_target=0)


def links_told(driver: Driver, link: LinkId) -> list[dict[str, LinkEntry]]:
    """The link states that left for a neighbour, the latest last."""
    return [
        {entry.neighbour: entry for entry in decode_links(told.body)}
        for batch in driver.told(link, Kind.RECORDS)
        for told in batch.records  # type: ignore[union-attr]
        if (told.origin, told.kind) == (driver.node.peer, RecordKind.LINKS)
    ]


# About ourselves


def test_a_new_link_and_a_lost_one_are_told_at_once() -> None:
    driver = Driver()
    witness = driver.neighbour("b")
    driver.take(object)
    link = driver.neighbour("c")
    assert set(links_told(driver, witness)[-1]) == {"b", "c"}
    driver.take(object)
    driver.closed(link)
    assert set(links_told(driver, witness)[-1]) == {"b"}


def test_a_suspect_link_is_avoided_but_not_told() -> None:
    driver = Driver()
    link, witness = driver.neighbour("b"), driver.neighbour("c")
    driver.take(object)
    driver.after(0.8, answering=[witness])
    assert driver.node.links.by_peer["b"].state is LinkState.SUSPECT
    assert set(driver.node.topology.graph()["me"]) == {"c"}
    assert all("b" in told for told in links_told(driver, witness))
    driver.frames(link, encode_echo(77, 10**15, 0))
    assert set(driver.node.topology.graph()["me"]) == {"b", "c"}


def test_a_changed_delay_is_told_when_it_matters() -> None:
    driver = Driver()
    link, witness = driver.neighbour("b"), driver.neighbour("c")
    driver.after(1.0, answering={link: 0.100, witness: 0.0})
    assert links_told(driver, witness)[-1]["b"].delay_us == pytest.approx(50_000, abs=2)
    driver.take(object)
    driver.after(5.0, answering={link: 0.104, witness: 0.0})
    assert links_told(driver, witness) == [], "4 % are nobody's business"
    driver.after(5.0, answering={link: 0.300, witness: 0.0})
    assert links_told(driver, witness)[-1]["b"].delay_us == pytest.approx(150_000, rel=0.12)


def test_a_changed_loss_is_told_too() -> None:
    driver = Driver()
    link, witness = driver.neighbour("b"), driver.neighbour("c")
    driver.after(1.0, answering=[link, witness])
    driver.take(object)
    for _ in range(10):
        driver.after(0.5, answering=[witness])
        driver.frames(link, encode_probe(1, 2))
    assert links_told(driver, witness)[-1]["b"].loss_ppm > 300_000


def test_link_state_is_told_at_most_once_per_interval() -> None:
    driver = Driver(config=STATIC.replace(spread_min_interval_s=1.0))
    link, witness = driver.neighbour("b"), driver.neighbour("c")
    driver.take(object)
    for turn in range(20):
        driver.after(0.5, answering={link: 0.4 if turn % 2 else 0.02, witness: 0.0})
    assert 3 <= len(links_told(driver, witness)) <= 11


def test_news_of_losses_come_less_often_the_longer_they_go_on_and_those_of_delays_do_not() -> None:
    told = {}
    for what, slow_s, loss in (("loss", 0.02, 0.4), ("delay", 0.4, 0.0)):
        driver = Driver(config=STATIC)
        link, witness = driver.neighbour("b"), driver.neighbour("c")
        driver.after(1.0, answering={link: 0.02, witness: 0.02})
        driver.take(object)
        for turn in range(60):
            is_bad = turn // 3 % 2
            driver.node.links.by_peer["b"].estimate.loss = loss * is_bad
            driver.after(0.3, answering={link: slow_s if is_bad else 0.02, witness: 0.02})
        told[what] = len(links_told(driver, witness))
    assert 6 <= told["loss"] <= 14 < told["delay"]


def test_of_what_may_be_a_step_the_others_hear_once_it_is_one_or_when_it_is_a_lot_worse() -> None:
    delays = {}
    for round_trip_s in (0.020, 0.6):
        driver = Driver(config=STATIC)
        link, witness = driver.neighbour("b"), driver.neighbour("c")
        driver.after(2.0, answering={link: 0.100, witness: 0.0})
        driver.take(object)
        driver.after(3.0, answering={link: round_trip_s, witness: 0.0})
        delays[round_trip_s] = [told["b"].delay_us for told in links_told(driver, witness)]
    assert delays[0.020] == [pytest.approx(10_000, abs=500)]
    assert len(delays[0.6]) > 1
    assert delays[0.6][-1] == pytest.approx(300_000, abs=500)


def test_a_link_that_gets_slow_is_told_at_once_where_budgets_hold() -> None:
    driver = Driver(config=Config.harmony(neighbours_target=0, variant="bp+qos"))
    link, witness = driver.neighbour("b"), driver.neighbour("c")
    driver.until(1000.0 + 12.0, answering={link: 0.02, witness: 0.0})
    driver.take(object)
    driver.until(1000.0 + 14.9, answering={link: 0.02, witness: 0.0})
    assert links_told(driver, witness) == []
    driver.until(1000.0 + 15.5, answering={link: 0.2, witness: 0.0})
    (told,) = links_told(driver, witness)
    assert told["b"].delay_us == pytest.approx(32_500, rel=0.05)


def test_harmony_spreads_on_its_period_only() -> None:
    driver = Driver(config=Config.harmony(neighbours_target=0, variant="bp"))
    link, witness = driver.neighbour("b"), driver.neighbour("c")
    driver.take(object)
    driver.until(1000.0 + 9.9, answering={link: 0.6, witness: 0.0})
    assert links_told(driver, witness) == []
    driver.until(1000.0 + 10.1, answering={link: 0.6, witness: 0.0})
    assert len(links_told(driver, witness)) == 1


def test_everything_is_repeated_on_the_refresh() -> None:
    driver = Driver(addresses=["tcp://10.0.0.9:1"])
    link = driver.neighbour("b")
    driver.subscribe("a/*")
    driver.node.set_attributes({"region": "north"}, driver.now)
    driver.after(0.5, answering=[link])
    driver.take(object)
    driver.after(STATIC.record_refresh_s, answering=[link])
    told = [r for batch in driver.told(link, Kind.RECORDS) for r in batch.records]  # type: ignore[union-attr]
    assert {record.kind for record in told} == {1, 2, 3, 4}
    (roles,) = [decode_roles(record.body) for record in told if record.kind == RecordKind.ROLES]
    assert roles == RolesBody("peer", ["tcp://10.0.0.9:1"])
    sequences = [record.sequence for record in told]
    assert sequences == sorted(set(sequences))


def test_subscribing_twice_to_the_same_is_told_once_and_the_last_to_leave_withdraws_it() -> None:
    driver = Driver()
    link = driver.neighbour("b")
    driver.take(object)

    def told() -> list[list[str]]:
        batches = driver.told(link, Kind.RECORDS)
        driver.take(object)
        return [decode_interests(r.body) for b in batches for r in b.records]  # type: ignore[union-attr]

    first, second = driver.subscribe("a"), driver.subscribe("a")
    assert told() == [["a"]]
    driver.node.unsubscribe(first, driver.now)
    driver.after(0.0)
    assert told() == []
    driver.node.unsubscribe(second, driver.now)
    driver.actions += driver.node.take_actions()
    assert told() == [[]]


def test_more_patterns_than_a_peer_may_announce_are_refused_and_leave_no_trace() -> None:
    driver = Driver(config=Config(neighbours_target=0, patterns_max=2))
    link = driver.neighbour("b")
    kept = driver.subscribe("a")
    driver.subscribe("b")
    with pytest.raises(UsageError, match="patterns_max"):
        driver.subscribe("c")
    driver.subscribe("a")
    driver.after(2 * STATIC.record_refresh_s, answering=[link])
    assert driver.node.interests.patterns_of("me") == {"a", "b"}
    driver.node.unsubscribe(kept, driver.now)
    driver.after(2 * STATIC.record_refresh_s, answering=[link])


def test_patterns_that_would_not_fit_into_a_record_are_refused_here_and_not_by_everyone_else() -> None:
    driver = Driver(config=STATIC.replace(record_body_max_bytes=1000))
    for number in range(4):
        driver.subscribe(f"{number}/" + "x" * 200)
    with pytest.raises(UsageError, match="record_body_max_bytes"):
        driver.subscribe("4/" + "x" * 200)
    driver.after(2 * STATIC.record_refresh_s)
    held = driver.node.book.get("me", RecordKind.INTERESTS)
    assert held is not None
    assert len(held.body) <= 1000


def test_attributes_that_cannot_travel_are_the_callers_mistake() -> None:
    driver = Driver(config=Config(neighbours_target=0, record_body_max_bytes=100))
    with pytest.raises(UsageError, match="type object"):
        driver.node.set_attributes({"x": object()}, driver.now)
    with pytest.raises(UsageError, match="100 at most"):
        driver.node.set_attributes({"x": "y" * 100}, driver.now)
    driver.node.set_attributes({"x": 1}, driver.now)
    driver.after(2 * STATIC.record_refresh_s)


# About others


def test_what_others_tell_is_taken_over() -> None:
    driver = Driver()
    link = driver.neighbour("b")
    driver.take(object)
    driver.records(
        link,
        links_record("b", "me", "p"),
        links_record("p", "b"),
        wants_record("p", "a/*", "b"),
        record("p", RecordKind.SITES, {"region": "north", "capacity": 3}),
    )
    assert driver.take(SubscribersChanged)
    assert driver.node.destinations("a/x") == ("p",)
    assert driver.node.routes.path("p") == ("me", "b", "p")
    assert driver.node._parts.sites.rows == {"p": {"region": "north", "capacity": 3}}


def test_link_entries_that_make_no_sense_are_left_out() -> None:
    driver = Driver()
    link = driver.neighbour("b")
    entries = [
        LinkEntry("ok", 1000, 0, 0, 10**6),
        LinkEntry("a b", 1000, 0, 0, 10**6),
        LinkEntry("x1", -1, 0, 0, 10**6),
        LinkEntry("x2", 10**9, 0, 0, 10**6),
        LinkEntry("x3", 0, -5, 0, 10**6),
        LinkEntry("x4", 0, 0, 10**6 + 1, 10**6),
        LinkEntry("x5", 0, 0, 0, 2**63),
        LinkEntry("p", 0, 0, 0, 0),
    ]
    driver.records(link, record("p", RecordKind.LINKS, entries))
    assert set(driver.node.topology.announced("p")) == {"ok"}


def test_patterns_and_links_of_one_peer_are_bounded() -> None:
    driver = Driver(config=Config(neighbours_target=0, patterns_max=5, links_max=3))
    link = driver.neighbour("b")
    driver.records(
        link,
        wants_record("p", "bad//one", "also bad*", *(f"t{n}" for n in range(50))),
        links_record("p", *(f"n{n}" for n in range(50))),
    )
    assert len(driver.node.interests.patterns_of("p")) <= 5
    assert not {"bad//one", "also bad*"} & driver.node.interests.patterns_of("p")
    assert len(driver.node.topology.announced("p")) <= 12


def test_a_peer_with_few_links_dials_one_more_at_a_time_until_it_has_enough() -> None:
    driver = Driver(config=Config(neighbours_target=2))
    link = driver.neighbour("b")
    for number in range(5):
        roles = RolesBody("peer", [f"tcp://10.0.0.{number}:1", "tcp://10.9.9.9:1"])
        driver.records(link, record(f"p{number}", RecordKind.ROLES, roles))
    driver.take(object)
    driver.after(1.05, answering=[link])
    (dial,) = driver.take(Dial)
    assert dial.address.startswith("tcp://10.0.0.")
    second = driver.neighbour("p9", address=dial.address)
    driver.take(object)
    driver.after(10.0, answering=[link, second])
    assert driver.take(Dial) == []


def test_addresses_nobody_can_dial_are_not_dialled() -> None:
    driver = Driver(config=Config(neighbours_target=4))
    link = driver.neighbour("b")
    addresses = ["tcp://0.0.0.0:1", "nonsense", "tcp://x:0", "udp://x:1", "tcp://[]:1"]
    driver.records(link, record("p", RecordKind.ROLES, RolesBody("peer", addresses)))
    driver.records(
        link, record("q", RecordKind.ROLES, RolesBody("peer", [f"tcp://h:{n}" for n in range(1, 99)]))
    )
    assert driver.node._parts.telling.addresses_of["p"] == ()
    assert len(driver.node._parts.telling.addresses_of["q"]) <= 16


# Forgetting


def test_a_record_that_is_not_refreshed_is_forgotten() -> None:
    driver = Driver(
        config=STATIC.replace(record_refresh_s=5.0, record_lifetime_s=12.0, orphan_grace_s=1000.0)
    )
    link = driver.neighbour("b")
    driver.records(link, links_record("b", "me", "p"), links_record("p", "b"), wants_record("p", "a"))
    driver.records(link, record("p", RecordKind.ROLES, RolesBody("peer", ["tcp://p:1"])))
    driver.records(link, record("p", RecordKind.SITES, {"x": 1}))
    driver.take(object)
    driver.after(11.0, answering=[link])
    assert driver.node.destinations("a") == ("p",)
    driver.after(2.5, answering=[link])
    assert driver.node.destinations("a") == ()
    assert driver.node.book.origins() == {"me"}
    assert driver.node._parts.telling.addresses_of == {}
    assert driver.node._parts.sites.rows == {}
    assert driver.take(SubscribersChanged)


def test_a_peer_that_no_path_reaches_is_forgotten_after_a_while_unless_it_comes_back() -> None:
    driver = Driver(config=STATIC.replace(orphan_grace_s=5.0))
    link = driver.neighbour("b")
    reach = (links_record("b", "me", "p"), links_record("p", "b"), wants_record("p", "a"))
    driver.records(link, *reach)
    driver.closed(link)
    driver.after(4.0)
    link = driver.neighbour("b")
    driver.after(10.0, answering=[link])
    assert driver.node.destinations("a") == ("p",), "it came back in time"
    driver.closed(link)
    driver.after(7.5)
    assert driver.node.book.origins() == {"me"}
    assert driver.node.interests.find("a") == ()


def test_who_leaves_is_not_wanted_for_anything_any_more() -> None:
    mesh = Mesh(Driver("a"), Driver("b"), Driver("c"))
    mesh.connect("a", "b")
    mesh.connect("b", "c")
    mesh.drivers["c"].subscribe("t")
    mesh.settle()
    assert mesh.drivers["a"].node.destinations("t") == ("c",)
    mesh.drivers["c"].node.leave(mesh.drivers["c"].now)
    mesh.drivers["c"].actions += mesh.drivers["c"].node.take_actions()
    mesh.settle()
    assert mesh.drivers["a"].node.destinations("t") == ()


def test_a_light_client_tells_no_links_and_dials_any_peer_it_hears_of() -> None:
    driver = Driver("leaf", Config(role=Role.CLIENT), seeds=["tcp://b:1"])
    link = driver.neighbour("b", address="tcp://b:1")
    assert links_told(driver, link) == []
    driver.records(link, record("p", RecordKind.ROLES, RolesBody("peer", ["tcp://p:1"])))
    driver.take(object)
    driver.after(5.0, answering=[link])
    assert driver.take(Dial) == [], "one peer is enough"
    driver.closed(link)
    driver.after(3.0)
    assert "tcp://p:1" in [action.address for action in driver.take(Dial)]
