"""Back pressure across the mesh: who publishes over a congested link is told to pause, and nobody else."""

import pytest
from support_nodes import Driver, Mesh, below, run, tail, wants_record

from anabranch.overlay.actions import SendControl
from anabranch.overlay.codec import encode_control
from anabranch.overlay.config import Config
from anabranch.overlay.congestion import CONGESTED_MAX, PAUSE_LEAST_S, PAUSE_MAX_S, TELL_EVERY_S
from anabranch.overlay.headers import Congestion, Kind
from anabranch.overlay.identifiers import LinkId
from anabranch.overlay.qos import Role


def relay() -> tuple[Driver, dict[str, LinkId]]:
    driver = Driver()
    links = {name: driver.neighbour(name) for name in "bcd"}
    driver.take(object)
    return driver, links


def notices(driver: Driver, link: LinkId) -> list[Congestion]:
    return [notice for notice in driver.told(link, Kind.CONGESTION) if isinstance(notice, Congestion)]


def test_a_relay_whose_link_has_a_backlog_tells_the_way_back_and_not_too_often() -> None:
    driver, links = relay()
    way = tail("p", "b", deliver=False, to=[("c", below(True)), ("d", below(True))])
    driver.bundle(links["b"], way, [run(1)])
    assert notices(driver, links["b"]) == []
    driver.node.link_backlog(links["c"], 0.05)
    for _ in range(5):
        driver.bundle(links["b"], way, [run(1)])
    assert notices(driver, links["b"]) == [Congestion("me", "c", 50_000, ["p"])]
    driver.now += 2 * TELL_EVERY_S
    driver.bundle(links["b"], way, [run(1)])
    assert len(notices(driver, links["b"])) == 2
    driver.take(object)
    driver.node.link_backlog(links["c"], 0.0)
    driver.now += 2 * TELL_EVERY_S
    driver.bundle(links["b"], way, [run(1)])
    assert notices(driver, links["b"]) == []


def test_a_notice_travels_back_peer_by_peer() -> None:
    driver, links = relay()
    driver.control(links["c"], Kind.CONGESTION, Congestion("x", "y", 7, ["p", "b"]))
    assert notices(driver, links["b"]) == [Congestion("x", "y", 7, ["p"])]
    driver.take(object)
    driver.control(links["c"], Kind.CONGESTION, Congestion("x", "y", 7, ["gone"]))
    assert driver.take(SendControl) == []
    assert driver.node.counters["congestion_notices"] == 2


def test_a_bundle_that_a_repair_turned_round_is_told_about_on_the_short_way_back() -> None:
    """Whom it passed twice would refuse the notice as going in circles."""
    driver, links = relay()
    driver.node.link_backlog(links["d"], 0.05)
    driver.bundle(links["c"], tail("p", "b", "me", "c", deliver=False, to=[("d", below(True))]), [run(1)])
    assert notices(driver, links["b"]) == [Congestion("me", "d", 50_000, ["p"])]
    assert notices(driver, links["c"]) == []
    driver.take(object)
    driver.bundle(links["b"], tail("p", "c", "p", "b", deliver=False, to=[("d", below(True))]), [run(1)])
    assert notices(driver, links["b"]) == [Congestion("me", "d", 50_000, ["p"])]
    congestion = driver.node._parts.congestion
    assert not congestion.any_known
    driver.bundle(links["c"], tail("me", "c", deliver=False, to=[("d", below(True))]), [run(1)])
    assert congestion.pause_until((("me", "d"),), urgent=False) > driver.now, "it is one of our own"


@pytest.mark.parametrize(
    ("pause_us", "pause_s"),
    [
        (50_000, 0.05),
        (0, PAUSE_LEAST_S),
        (-5, PAUSE_LEAST_S),
        (2**64 - 1, PAUSE_MAX_S),
        (-(2**63), PAUSE_LEAST_S),
    ],
)
def test_a_publisher_pauses_for_as_long_as_told_within_bounds(pause_us: int, pause_s: float) -> None:
    mesh = Mesh(Driver("a"), Driver("b"), Driver("c"))
    mesh.connect("a", "b")
    mesh.connect("b", "c")
    mesh.drivers["c"].subscribe("far")
    mesh.drivers["b"].subscribe("near")
    mesh.settle()
    a = mesh.drivers["a"]
    far, near = (a.node.open_publisher(topic, a.now) for topic in ("far", "near"))
    a.control(a.node.links.by_peer["b"].id, Kind.CONGESTION, Congestion("b", "c", pause_us, []))
    for outlet in (far, near):
        a.put(outlet, 1)
    a.flush()
    assert far.pause_until == pytest.approx(a.now + pause_s)
    assert near.pause_until <= a.now, "its route does not pass the congested link"
    mesh.settle()
    assert (mesh.received("b"), mesh.received("c")) == ([1], [1]), "a pause is advice: what was put leaves"
    mesh.after(2.0)
    a.put(far, 2)
    a.flush()
    assert far.pause_until <= a.now


def test_a_slow_application_is_told_to_its_publishers_too() -> None:
    mesh = Mesh(Driver("a"), Driver("b"))
    mesh.connect("a", "b")
    mesh.drivers["b"].subscribe("t")
    mesh.settle()
    a, b = mesh.drivers["a"], mesh.drivers["b"]
    b.node.application_backlog(("a", "b"), 0.05, b.now)
    b.actions += b.node.take_actions()
    mesh.settle()
    outlet = a.node.open_publisher("t", a.now)
    a.put(outlet, 1)
    a.flush()
    assert outlet.pause_until == pytest.approx(a.now + 0.05)


def test_a_light_client_pauses_for_whatever_it_is_told() -> None:
    driver = Driver("leaf", Config(role=Role.CLIENT))
    link = driver.neighbour("b")
    driver.records(link, wants_record("p", "t"))
    driver.control(link, Kind.CONGESTION, Congestion("x", "y", 50_000, []))
    outlet = driver.node.open_publisher("t", driver.now)
    driver.put(outlet, 1)
    driver.flush()
    assert outlet.pause_until == pytest.approx(driver.now + 0.05)


def test_our_own_slow_application_slows_our_own_publishers() -> None:
    driver = Driver()
    driver.subscribe("t")
    driver.node.application_backlog(("me",), 0.05, driver.now)
    outlet = driver.node.open_publisher("t", driver.now)
    driver.put(outlet, 1)
    driver.flush()
    assert outlet.pause_until == pytest.approx(driver.now + 0.05)


def test_what_is_remembered_is_bounded_and_forgotten() -> None:
    driver, links = relay()
    congestion = driver.node._parts.congestion
    driver.node.link_backlog(links["c"], 0.05)
    for number in range(2 * CONGESTED_MAX):
        driver.node.receive(links["d"], [congestion_frame(f"x{number}")], driver.now)
        driver.bundle(links["b"], tail(f"p{number}", "b", to=[("c", below(True))]), [run(1)])
    assert len(congestion._until) <= CONGESTED_MAX
    assert len(congestion._told) <= CONGESTED_MAX
    driver.after(3.0, answering=list(links.values()))
    assert not congestion.any_known
    assert not congestion._told


def congestion_frame(here: str) -> bytes:
    return encode_control(Kind.CONGESTION, Congestion(here, "y", 10, []))


@pytest.mark.parametrize(
    "notice",
    [
        Congestion("x", "y", 1, ["b", "c"] * 1000),
        Congestion("x", "y", 1, ["p", "c", "b", "c"]),
        Congestion("x", "y", 1, ["me", "b"]),
        Congestion("x" * 1000, "y", 1, ["b"]),
        Congestion("x", "", 1, []),
        Congestion("x", "y", 1, ["a b", "b"]),
    ],
    ids=["ping-pong", "loop", "through us", "long name", "no name", "bad name"],
)
def test_a_way_back_that_no_bundle_came_is_malformed(notice: Congestion) -> None:
    """Otherwise one message can be made to travel between two peers a thousand times."""
    driver, links = relay()
    driver.control(links["d"], Kind.CONGESTION, notice)
    assert driver.drops() == {"malformed": 1}
    assert driver.take(SendControl) == []
