"""The node as its shell sees it: inputs and commands in, actions and one timer out, the same every time."""

import random

import msgspec
import pytest
from support_nodes import Driver, Mesh, links_record, record, run, tail, wants_record

from anabranch.overlay.actions import Deliver, Dial, Reported, SendControl, SubscribersChanged, Write
from anabranch.overlay.config import Config
from anabranch.overlay.errors import UsageError
from anabranch.overlay.headers import Inspect, Kind, RecordKind, Report, RolesBody
from anabranch.overlay.identifiers import PeerId
from anabranch.overlay.node import Node
from anabranch.overlay.qos import Role
from anabranch.overlay.records import ControlRecord, LinkRecord, ProbeRecord, RouteRecord

STATIC = Config(neighbours_target=0)


def test_a_node_that_starts_dials_its_seeds_and_knows_itself() -> None:
    driver = Driver(seeds=["tcp://b:1", "tcp://c:1"])
    assert [action.address for action in driver.take(Dial)] == ["tcp://b:1", "tcp://c:1"]
    assert driver.node.book.origins() == {"me"}
    assert driver.node.next_timeout() is not None


def test_actions_are_given_once() -> None:
    driver = Driver()
    driver.node.subscribe("a", driver.now)
    assert driver.node.take_actions()
    assert driver.node.take_actions() == []


def test_the_same_inputs_give_the_same_actions() -> None:
    def story(seed: int) -> list[object]:
        rng = random.Random(42)
        driver = Driver(config=Config(neighbours_target=3), seeds=["tcp://s:1"], seed=seed)
        links = [driver.neighbour(name) for name in "bcd"]
        for number in range(30):
            link = rng.choice(links)
            roles = RolesBody("peer", [f"tcp://10.0.0.{number}:1"])
            driver.records(
                link, wants_record(f"p{number}", "a"), record(f"p{number}", RecordKind.ROLES, roles)
            )
            driver.records(link, links_record(f"p{number}", *rng.sample("bcd", 2)))
            driver.after(rng.random() / 3, answering=links)
        outlet = driver.node.open_publisher("a", driver.now)
        driver.put(outlet, 1)
        driver.flush()
        return [msgspec.structs.asdict(action) for action in driver.take(msgspec.Struct)]

    assert str(story(5)) == str(story(5))
    assert str(story(5)) != str(story(6)), "the randomness that was given is used"


def test_handling_a_timeout_lets_time_pass() -> None:
    """A shell sleeps until `next_timeout`; one that stays in the past would make it spin."""
    driver = Driver(seeds=["tcp://b:1"], config=Config(neighbours_target=4))
    link = driver.neighbour("c")
    begin = driver.now
    for _ in range(500):
        due = driver.node.next_timeout()
        assert due is not None
        driver.now = max(driver.now, due)
        driver.node.handle_timeout(driver.now)
        driver.frames(link, b"\x01\x03")
    assert driver.now > begin + 20


def test_waking_up_too_early_does_no_harm() -> None:
    driver = Driver()
    driver.take(object)
    driver.node.handle_timeout(driver.now)
    assert driver.node.take_actions() == []


def test_subscribers_are_told_of_to_those_who_wait_for_them() -> None:
    driver = Driver()
    link = driver.neighbour("b")
    driver.take(object)
    driver.records(link, wants_record("b", "a"))
    assert driver.take(SubscribersChanged)
    assert driver.node.destinations("a") == ("b",)
    driver.subscribe("a")
    assert driver.take(SubscribersChanged)
    assert driver.node.destinations("a") == ("b", "me")


def test_a_light_client_believes_its_peer_about_who_can_be_reached() -> None:
    driver = Driver("leaf", Config(role=Role.CLIENT))
    link = driver.neighbour("b")
    driver.records(link, wants_record("p", "a"))
    assert driver.node.destinations("a") == ("p",)
    driver.closed(link)
    assert driver.node.destinations("a") == ()


@pytest.mark.parametrize("pattern", ["", "a//b", "a*", "x" * 256])
def test_a_wrong_pattern_is_the_callers_mistake_and_leaves_no_trace(pattern: str) -> None:
    driver = Driver()
    with pytest.raises(UsageError, match="pattern"):
        driver.subscribe(pattern)
    assert driver.node.interests.patterns_of("me") == frozenset()


def test_unsubscribing_twice_does_no_harm() -> None:
    driver = Driver()
    subscription = driver.subscribe("a")
    for _ in range(2):
        driver.node.unsubscribe(subscription, driver.now)
    driver.node.check_invariants()


def test_a_peer_name_of_a_subclass_travels_as_plain_text() -> None:
    node = Node(PeerId("sub"), STATIC, epoch=1, rng=random.Random(1))
    node.start(0.0)
    assert type(node.peer) is str


# Reports and records


def test_a_report_shows_links_routes_peers_and_counters() -> None:
    mesh = Mesh(Driver("a"), Driver("b"), Driver("c"))
    mesh.connect("a", "b")
    mesh.connect("b", "c")
    mesh.drivers["c"].subscribe("t")
    mesh.settle()
    mesh.publish("a", "t", 1)
    report = mesh.drivers["a"].node.report(mesh.drivers["a"].now)
    links, routes, peers, counters = (report[name] for name in ("links", "routes", "peers", "counters"))
    assert [(link["peer"], link["state"], link["dialled"]) for link in links] == [("b", "up", True)]  # type: ignore[attr-defined]
    assert [route["path"] for route in routes] == [["a", "b", "c"]]  # type: ignore[attr-defined]
    assert peers == {"a": [], "b": [], "c": ["t"]}
    assert counters["published"] == 1  # type: ignore[index]
    assert set(report["mesh"]) == {"a", "b", "c"}  # type: ignore[call-overload]
    assert msgspec.json.decode(msgspec.json.encode(report)) == report


def test_a_neighbour_can_be_asked_for_its_view() -> None:
    driver = Driver()
    link = driver.neighbour("b")
    driver.take(object)
    driver.node.inspect(link, 77, driver.now)
    driver.actions += driver.node.take_actions()
    assert driver.told(link, Kind.INSPECT) == [Inspect(77)]
    driver.control(link, Kind.REPORT, Report(77, b"{}"))
    assert driver.take(Reported) == [Reported(link, 77, b"{}")]
    driver.control(link, Kind.INSPECT, Inspect(5))
    (answer,) = driver.told(link, Kind.REPORT)
    assert isinstance(answer, Report)
    assert answer.token == 5
    assert msgspec.json.decode(answer.document)["peer"] == "me"


def test_what_happens_is_recorded_in_one_schema_and_only_where_it_is_kept() -> None:
    def kinds(recording: bool) -> set[type]:
        driver = Driver()
        driver.node.recording = recording
        link = driver.neighbour("b")
        driver.records(link, wants_record("b", "t"))
        driver.put(driver.node.open_publisher("t", driver.now), 1)
        driver.flush()
        driver.after(11.0, answering=[link])
        assert driver.node.recording is recording
        return {type(action.record) for action in driver.take(Write)}

    assert kinds(recording=True) == {LinkRecord, ProbeRecord, RouteRecord, ControlRecord}
    assert kinds(recording=False) == set()


def test_counters_are_written_as_they_stand() -> None:
    driver = Driver()
    driver.after(10.5)
    (counters,) = [a.record for a in driver.take(Write) if isinstance(a.record, ControlRecord)]
    assert counters.peer == "me"
    driver.node.counters.add("published", 3)
    driver.after(10.0)
    (counters,) = [a.record for a in driver.take(Write) if isinstance(a.record, ControlRecord)]
    assert counters.counters["published"] == 3
    assert driver.node.counters["never counted"] == 0


# Guards of our own


def test_broken_tables_are_found_by_the_invariants() -> None:
    driver = Driver()
    driver.neighbour("b")
    driver.node.check_invariants()
    driver.node.topology.set_own("me", [])
    with pytest.raises(AssertionError, match="usable"):
        driver.node.check_invariants()


def test_two_nodes_of_one_process_share_nothing() -> None:
    one, two = Driver("a"), Driver("b")
    link = one.neighbour("c")
    one.subscribe("t")
    one.bundle(link, tail("c"), [run(1, topic="t")])
    assert one.take(Deliver)
    assert len(two.node.links) == 0
    assert two.node.book.origins() == {"b"}
    assert two.node.counters == {}
    assert two.take(SendControl) == []


def test_a_restarted_peer_is_not_mistaken_for_its_former_self() -> None:
    mesh = Mesh(Driver("a"), Driver("b", epoch=100))
    mesh.connect("a", "b")
    mesh.drivers["b"].subscribe("before")
    mesh.drivers["a"].subscribe("t")
    mesh.settle()
    mesh.publish("b", "t", 1, 2)
    mesh.cut("a", "b")
    mesh.drivers["b"] = Driver("b", epoch=200)
    mesh.connect("b", "a")
    mesh.drivers["b"].subscribe("after")
    mesh.settle()
    a = mesh.drivers["a"].node
    assert a.interests.patterns_of("b") == {"after"}
    mesh.publish("b", "t", 3, 4)
    assert mesh.received("a") == [1, 2, 3, 4], "its sequence begins anew and is no repetition"
    assert mesh.drivers["a"].drops() == {}


def test_a_peer_restarted_with_a_clock_that_went_back_is_heard_again() -> None:
    mesh = Mesh(Driver("a"), Driver("b", epoch=200), Driver("c"))
    mesh.connect("a", "b")
    mesh.connect("a", "c")
    mesh.drivers["b"].subscribe("before")
    mesh.settle()
    mesh.cut("a", "b")
    mesh.drivers["b"] = Driver("b", epoch=100)
    mesh.connect("b", "a")
    mesh.drivers["b"].subscribe("after")
    mesh.settle()
    for name in "ac":
        assert mesh.drivers[name].node.interests.patterns_of("b") == {"after"}
    assert mesh.drivers["b"].node.identity.epoch > 200
