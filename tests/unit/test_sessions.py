"""Links from hello to farewell: who is there, whether it is alive, which of two links stays."""

import pytest
from support_nodes import EPOCH, Driver, Mesh

from anabranch.overlay.actions import CloseLink, Dial, SendControl, Write
from anabranch.overlay.codec import decode_echo, encode_control, encode_echo, encode_probe
from anabranch.overlay.config import Config
from anabranch.overlay.estimators import Estimate
from anabranch.overlay.headers import Hello, Kind
from anabranch.overlay.identifiers import LinkId
from anabranch.overlay.links import PROBES_MAX, Link
from anabranch.overlay.qos import LinkState
from anabranch.overlay.queues import LinkQueue
from anabranch.overlay.records import LinkRecord, ProbeRecord

CONFIG = Config(neighbours_target=0)


def sent(driver: Driver, link: LinkId, *kinds: Kind) -> list[Kind]:
    """The kinds of control messages that left for a link, in order."""
    return [
        Kind(action.frame[1])
        for action in driver.actions
        if isinstance(action, SendControl) and action.link == link and (not kinds or action.frame[1] in kinds)
    ]


def states(driver: Driver) -> list[tuple[str, str]]:
    records = [action.record for action in driver.actions if isinstance(action, Write)]
    return [(record.state, record.cause) for record in records if isinstance(record, LinkRecord)]


# Hello


def test_the_side_that_dialled_speaks_first_and_the_other_answers() -> None:
    driver = Driver()
    dialled = driver.opened("tcp://b:1")
    assert driver.told(dialled, Kind.HELLO) == [Hello("me", EPOCH, "peer", driver.node.identity.instance)]
    accepted = driver.opened()
    assert sent(driver, accepted) == []
    driver.control(accepted, Kind.HELLO, Hello("c", 1, "peer", 9))
    assert sent(driver, accepted)[0] is Kind.HELLO
    driver.take(object)
    driver.control(dialled, Kind.HELLO, Hello("b", 1, "peer", 9))
    assert sent(driver, dialled, Kind.HELLO) == []
    assert set(driver.node.links.by_peer) == {"b", "c"}


def test_a_connection_without_hello_is_closed_in_time() -> None:
    driver = Driver()
    link = driver.opened()
    driver.after(CONFIG.hello_timeout_s - 0.01)
    assert driver.take(CloseLink) == []
    driver.after(0.02)
    assert [(action.link, action.reason) for action in driver.take(CloseLink)] == [(link, "no hello")]
    assert driver.drops() == {"no_session": 1}
    assert len(driver.node.links) == 0


@pytest.mark.parametrize(
    "hello", [Hello("a b", 1, "peer", 1), Hello("b", 1, "king", 1), Hello("", 1, "peer", 1)]
)
def test_a_hello_that_makes_no_sense_is_malformed(hello: Hello) -> None:
    driver = Driver()
    driver.control(driver.opened(), Kind.HELLO, hello)
    assert driver.drops() == {"malformed": 1}
    assert driver.node.links.by_peer == {}


def test_a_second_hello_changes_nothing() -> None:
    driver = Driver()
    link = driver.neighbour("b")
    driver.control(link, Kind.HELLO, Hello("c", 1, "peer", 7))
    assert set(driver.node.links.by_peer) == {"b"}


def test_a_peer_that_dialled_itself_notices_and_never_does_it_again() -> None:
    driver = Driver(seeds=["tcp://me:1"])
    assert [action.address for action in driver.take(Dial)] == ["tcp://me:1"]
    dialled, accepted = driver.opened("tcp://me:1"), driver.opened()
    (hello,) = driver.told(dialled, Kind.HELLO)
    driver.control(accepted, Kind.HELLO, hello)
    driver.control(dialled, Kind.HELLO, hello)
    assert len(driver.take(CloseLink)) == 2
    assert driver.drops() == {}
    driver.after(60)
    assert driver.take(Dial) == []


def test_another_peer_of_our_name_is_refused_and_counted() -> None:
    driver = Driver()
    driver.neighbour("me", epoch=EPOCH + 1, instance=1)
    assert [action.reason for action in driver.take(CloseLink)] == ["name taken"]
    assert driver.drops() == {"conflict": 1}


def test_a_restarted_peer_takes_the_place_of_its_former_self_and_not_the_other_way_round() -> None:
    driver = Driver()
    old = driver.neighbour("b", epoch=5)
    new = driver.neighbour("b", epoch=6)
    assert [(action.link, action.reason) for action in driver.take(CloseLink)] == [(old, "restarted")]
    assert driver.node.links.by_peer["b"].id == new
    late = driver.neighbour("b", epoch=5)
    assert [(action.link, action.reason) for action in driver.take(CloseLink)] == [(late, "duplicate link")]
    assert driver.node.links.by_peer["b"].id == new


def test_a_peer_that_connects_again_replaces_its_dead_connection() -> None:
    driver = Driver()
    old, new = driver.neighbour("b"), driver.neighbour("b")
    assert [(action.link, action.reason) for action in driver.take(CloseLink)] == [(old, "replaced")]
    assert driver.node.links.by_peer["b"].id == new


def both_dial() -> tuple[dict[str, Driver], dict[str, tuple[LinkId, LinkId]]]:
    """Two peers that dialled each other: (the dialling end, the accepting end) of each connection."""
    drivers = {"a": Driver("a"), "b": Driver("b")}
    ends = {
        name: (drivers[name].opened(f"tcp://{other}:1"), drivers[other].opened())
        for name, other in ("ab", "ba")
    }
    return drivers, ends


def introduce(drivers: dict[str, Driver], link: LinkId, name: str, other: str, at: LinkId) -> None:
    """Carry the hello that `name` sent on its end to the other end, if it sent one."""
    for hello in drivers[name].told(link, Kind.HELLO)[:1]:
        drivers[other].control(at, Kind.HELLO, hello)


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_when_both_dialled_at_once_both_keep_the_same_link(order: str) -> None:
    drivers, ends = both_dial()
    for name in order:
        other = "b" if name == "a" else "a"
        introduce(drivers, ends[name][0], name, other, ends[name][1])
    for name in order:
        other = "b" if name == "a" else "a"
        introduce(drivers, ends[name][1], other, name, ends[name][0])
    assert drivers["a"].node.links.by_peer["b"].id == ends["a"][0], "the one that the smaller name dialled"
    assert drivers["b"].node.links.by_peer["a"].id == ends["a"][1]


@pytest.mark.parametrize(("first", "second"), ["ab", "ba"])
def test_when_the_other_dials_later_the_link_that_stands_stays(first: str, second: str) -> None:
    drivers, ends = both_dial()
    for name, other in ((first, second), (second, first)):
        introduce(drivers, ends[name][0], name, other, ends[name][1])
        introduce(drivers, ends[name][1], other, name, ends[name][0])
    assert drivers[first].node.links.by_peer[second].id == ends[first][0]
    assert drivers[second].node.links.by_peer[first].id == ends[first][1]


def test_connections_beyond_the_limits_are_refused_and_known_peers_still_come_back() -> None:
    driver = Driver(config=Config(neighbours_target=0, links_max=2, links_opening_max=3))
    driver.neighbour("b", epoch=1)
    driver.neighbour("c")
    driver.neighbour("d")
    assert [action.reason for action in driver.take(CloseLink)] == ["no room"]
    assert driver.drops() == {"table_full": 1}
    driver.neighbour("b", epoch=2)
    assert [action.reason for action in driver.take(CloseLink)] == ["restarted"]
    for _ in range(10):
        driver.opened()
    assert [action.reason for action in driver.take(CloseLink)] == ["too many connections"] * 7
    assert driver.drops() == {"table_full": 8}
    assert len(driver.node.links) == 5


# Life and death


def test_a_silent_link_is_probed_faster_then_suspect_then_down() -> None:
    driver = Driver()
    link = driver.neighbour("b")
    started = driver.now
    driver.until(started + CONFIG.suspect_after_s - 0.01)
    assert driver.node.links.by_peer["b"].state is LinkState.UP
    driver.take(object)
    driver.until(started + CONFIG.suspect_after_s + CONFIG.probe_fast_interval_s + 0.01)
    assert driver.node.links.by_peer["b"].state is LinkState.SUSPECT
    assert not driver.node.links.by_peer["b"].is_usable()
    driver.until(started + CONFIG.down_after_s + CONFIG.probe_fast_interval_s + 0.01)
    assert driver.node.links.by_peer == {}
    assert states(driver) == [("suspect", "silent"), ("down", "silent")]
    assert len(sent(driver, link, Kind.PROBE)) >= 4
    assert [action.reason for action in driver.take(CloseLink)] == ["silent"]


@pytest.mark.parametrize(
    "sign", [encode_probe(1, 2), encode_echo(77, 10**15, 0), encode_control(Kind.RECORDS), b"\x01\x01"]
)
def test_anything_heard_is_a_life_sign_and_ends_the_suspicion(sign: bytes) -> None:
    driver = Driver()
    link = driver.neighbour("b")
    driver.after(0.75)
    assert driver.node.links.by_peer["b"].state is LinkState.SUSPECT
    driver.frames(link, sign)
    assert driver.node.links.by_peer["b"].state is LinkState.UP
    driver.after(0.3)
    assert driver.node.links.by_peer["b"].state is LinkState.UP
    assert states(driver)[1:] == [("suspect", "silent"), ("up", "heard")]


def test_an_answered_link_lives_for_ever_and_is_measured() -> None:
    driver = Driver()
    link = driver.neighbour("b")
    driver.after(30, answering=[link])
    estimate = driver.node.links.by_peer["b"].estimate
    assert estimate.samples > 100
    assert (estimate.loss, estimate.availability) == (0.0, 1.0)


def test_the_round_trip_is_what_passed_less_what_the_neighbour_held() -> None:
    driver = Driver()
    link = driver.neighbour("b")
    (sequence,) = driver.node.links.by_peer["b"].probes
    driver.now += 0.050
    driver.frames(link, encode_echo(sequence, 10**15, 10_000))
    assert driver.node.links.by_peer["b"].estimate.delay_s == pytest.approx(0.020)
    driver.frames(link, encode_echo(sequence, 10**15, 0))
    assert driver.node.links.by_peer["b"].estimate.samples == 1
    records = [action.record for action in driver.take(Write)]
    (probe,) = [record for record in records if isinstance(record, ProbeRecord)]
    assert (probe.neighbour, probe.seq, probe.rtt_us) == ("b", sequence, pytest.approx(40_000, abs=1))


def test_probes_without_echo_count_as_lost() -> None:
    driver = Driver()
    link = driver.neighbour("b")
    for _ in range(20):
        driver.after(0.2)
        driver.frames(link, encode_probe(1, 2))
    estimate = driver.node.links.by_peer["b"].estimate
    assert estimate.loss > 0.5
    records = [action.record for action in driver.take(Write)]
    probes = [record for record in records if isinstance(record, ProbeRecord)]
    assert [probe.seq for probe in probes] == list(range(1, len(probes) + 1))
    assert probes
    assert all(probe.rtt_us is None and probe.waited_us > 100_000 for probe in probes)
    assert {probe.connection for probe in probes} == {link}


def test_a_probe_is_echoed_with_the_clock_of_who_echoes() -> None:
    driver = Driver()
    link = driver.neighbour("b")
    driver.take(object)
    driver.frames(link, encode_probe(4711, 2**64 - 1))
    (echo,) = driver.take(SendControl)
    sequence, clock_us, held_us = decode_echo(echo.frame)
    assert (sequence, held_us) == (4711, 0)
    assert 0 <= clock_us - driver.node.identity.epoch < 10_000_000


def test_a_far_neighbour_is_given_more_time() -> None:
    near, far = (
        Link(LinkId(1), None, 0.0, Estimate(0.25), LinkQueue(1)),
        Link(LinkId(2), None, 0.0, Estimate(0.25), LinkQueue(1)),
    )
    far.estimate.add_round_trip(0.4)
    assert near.silence_limits(CONFIG) == (CONFIG.suspect_after_s, CONFIG.down_after_s)
    assert far.silence_limits(CONFIG) == pytest.approx(
        (CONFIG.suspect_after_s + 0.8, CONFIG.down_after_s + 1.2)
    )


def test_when_our_own_loop_stood_still_nobody_is_blamed() -> None:
    driver = Driver()
    link = driver.neighbour("b")
    driver.after(1.0, answering=[link])
    driver.now += 20.0
    driver.node.handle_timeout(driver.now)
    assert driver.node.links.by_peer["b"].state is LinkState.UP
    driver.until(driver.now + 3.0)
    assert driver.node.links.by_peer == {}


def test_probes_under_way_are_bounded() -> None:
    link = Link(LinkId(1), None, 0.0, Estimate(0.25), LinkQueue(1))
    lost = [gone for turn in range(100) for gone in link.start_probe(float(turn))[1]]
    assert len(link.probes) == PROBES_MAX
    assert lost == [(turn + 1, float(turn)) for turn in range(100 - PROBES_MAX)]
    link.next_probe = 0xFFFFFFFF
    assert [link.start_probe(0.0)[0], link.start_probe(0.0)[0]] == [0xFFFFFFFF, 1]


def test_what_was_measured_is_remembered_across_a_lost_connection_and_the_outage_counts() -> None:
    driver = Driver()
    link = driver.neighbour("b")
    (sequence,) = driver.node.links.by_peer["b"].probes
    driver.now += 0.1
    driver.frames(link, encode_echo(sequence, 10**15, 0))
    driver.closed(link)
    assert driver.node.links.by_peer == {}
    driver.after(1.0)
    driver.neighbour("b")
    estimate = driver.node.links.by_peer["b"].estimate
    assert estimate.delay_s == pytest.approx(0.05)
    assert estimate.availability < 0.5


def test_memories_of_former_neighbours_are_bounded() -> None:
    driver = Driver(config=Config(neighbours_target=0, links_max=5))
    for number in range(30):
        driver.closed(driver.neighbour(f"p{number}"))
    assert len(driver.node.sessions._history) <= 5


# Farewell


def test_a_farewell_closes_the_link_and_is_told_to_the_mesh() -> None:
    driver = Driver()
    link, other = driver.neighbour("b"), driver.neighbour("c")
    driver.take(object)
    driver.control(link, Kind.BYE)
    assert set(driver.node.links.by_peer) == {"c"}
    assert Kind.RECORDS in sent(driver, other)
    assert [action.link for action in driver.take(CloseLink)] == [link]


def test_a_neighbour_that_lost_its_memory_of_us_is_dialled_again() -> None:
    driver = Driver(seeds=["tcp://b:1"])
    link = driver.neighbour("b", address="tcp://b:1")
    driver.take(object)
    driver.control(link, Kind.WHO)
    assert driver.node.links.by_peer == {}
    driver.after(1.0)
    assert [action.address for action in driver.take(Dial)] == ["tcp://b:1"]


def test_who_speaks_before_its_hello_is_asked_once_who_it_is() -> None:
    driver = Driver()
    link = driver.opened()
    for _ in range(5):
        driver.frames(link, encode_probe(1, 2))
    driver.control(link, Kind.WHO)
    assert sent(driver, link) == [Kind.WHO]
    assert driver.drops() == {"no_session": 6}
    driver.control(link, Kind.HELLO, Hello("b", 1, "peer", 1))
    assert set(driver.node.links.by_peer) == {"b"}


def test_leaving_says_farewell_withdraws_everything_and_dials_nobody_again() -> None:
    driver = Driver(seeds=["tcp://b:1"])
    link = driver.neighbour("b", address="tcp://b:1")
    driver.subscribe("a")
    driver.take(object)
    driver.node.leave(driver.now)
    driver.actions += driver.node.take_actions()
    assert sent(driver, link) == [Kind.RECORDS, Kind.RECORDS, Kind.BYE]
    assert [action.link for action in driver.take(CloseLink)] == [link]
    driver.node.link_closed(link, driver.now)
    for _ in range(100):
        driver.now += 0.1
        driver.node.handle_timeout(driver.now)
    driver.actions += driver.node.take_actions()
    assert driver.take(Dial) == []


def test_a_lost_link_is_dialled_again_by_the_side_that_dialled() -> None:
    mesh = Mesh(Driver("a", seeds=["tcp://b:1"]), Driver("b"))
    mesh.connect("a", "b")
    mesh.cut("a", "b")
    a, b = mesh.drivers["a"], mesh.drivers["b"]
    a.after(1.0)
    b.after(1.0)
    assert [action.address for action in a.take(Dial)] == ["tcp://b:1"]
    assert b.take(Dial) == []


def test_a_failed_dial_is_tried_again() -> None:
    driver = Driver(seeds=["tcp://b:1"])
    for _ in range(3):
        assert [action.address for action in driver.take(Dial)] == ["tcp://b:1"]
        driver.node.dial_failed("tcp://b:1", driver.now)
        driver.after(7.0)


def test_somebody_found_by_beacon_is_dialled_at_its_first_usable_address() -> None:
    driver = Driver()
    driver.node.found(["tcp://*:1", "nonsense", "tcp://10.0.0.2:1", "tcp://10.0.0.3:1"], driver.now)
    driver.after(0.0)
    driver.actions += driver.node.take_actions()
    assert [action.address for action in driver.take(Dial)] == ["tcp://10.0.0.2:1"]
