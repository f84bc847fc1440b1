"""Bundles that arrive: delivered once and in order, passed on unread, aged by every hop."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support_nodes import Driver, Mesh, below, links_record, on_the_wire, run, tail, wants_record

from anabranch.overlay.actions import Deliver, SendBundle
from anabranch.overlay.codec import Frame, encode_bundle_header, encode_echo, encode_runs, encode_tail
from anabranch.overlay.config import Config
from anabranch.overlay.delivering import REPAIR_HOLD_S
from anabranch.overlay.headers import BUNDLE_HEADER, Tail
from anabranch.overlay.identifiers import LinkId
from anabranch.overlay.qos import Role

STATIC = Config(neighbours_target=0)


@pytest.fixture
def driver() -> Driver:
    """A node with neighbours b, c and d that wants topic `a`."""
    driver = Driver()
    for name in "bcd":
        driver.neighbour(name)
    driver.subscribe("a")
    driver.take(object)
    return driver


def link(driver: Driver, name: str) -> LinkId:
    return driver.node.links.by_peer[name].id


def test_a_run_is_delivered_with_its_way_and_its_age(driver: Driver) -> None:
    driver.bundle(link(driver, "b"), tail("p", "b"), [run(1, 2, first=5, publisher=3)], elapsed_us=20_000)
    (action,) = [action for action in driver.actions if isinstance(action, Deliver)]
    delivered = action.run
    assert delivered.payloads == [1, 2]
    assert (delivered.topic, delivered.origin, delivered.publisher, delivered.first_sequence) == (
        "a",
        "p",
        3,
        5,
    )
    assert delivered.path == ("p", "b", "me")
    assert delivered.age_s == pytest.approx(0.020)
    assert delivered.deadline_s == 0.0
    record = driver.node.delivery_record(delivered)
    assert (record.peer, record.origin, record.topic, record.publisher) == ("me", "p", "a", 3)
    assert (record.seq, record.count, record.path, record.late) == (5, 2, ["p", "b", "me"], False)
    assert record.age_us == pytest.approx(20_000, abs=1)
    assert (record.deadline_us, record.has_copies, record.repeated) == (0, False, 0)


def test_what_came_twice_is_written_with_the_next_delivery(driver: Driver) -> None:
    def deliver(by: str, first: int) -> None:
        way = msgspec.structs.replace(tail("p", by), copies=2)
        driver.bundle(link(driver, by), way, [run("x", first=first)], deadline_us=9_000)

    for by, first in (("b", 5), ("c", 5), ("b", 6), ("b", 7), ("c", 6), ("c", 7), ("b", 8), ("b", 9)):
        deliver(by, first)
    records = [driver.node.delivery_record(action.run) for action in driver.take(Deliver)]
    assert [(record.seq, record.repeated) for record in records] == [(5, 0), (6, 1), (7, 0), (8, 2), (9, 0)]
    assert all(record.has_copies and record.deadline_us == 9_000 for record in records)
    assert {record.origin_epoch for record in records} == {1}


def test_the_delay_of_the_link_counts_into_the_age_and_the_age_against_the_deadline(driver: Driver) -> None:
    b = link(driver, "b")
    (sequence,) = driver.node.links.by_peer["b"].probes
    driver.now += 0.060
    driver.frames(b, encode_echo(sequence, 10**15, 0))
    driver.take(object)
    driver.bundle(b, tail("b"), [run(1)], elapsed_us=25_000, deadline_us=50_000)
    (action,) = [action for action in driver.actions if isinstance(action, Deliver)]
    assert (action.run.age_s, action.run.deadline_s) == (pytest.approx(0.055), 0.05)
    assert driver.node.delivery_record(action.run).late


def test_what_nobody_here_wants_is_counted(driver: Driver) -> None:
    driver.bundle(link(driver, "b"), tail("b"), [run(1, 2, topic="unwanted"), run(3)])
    assert driver.delivered() == [3]
    assert driver.drops() == {"no_subscriber": 2}


def test_a_publication_is_delivered_once_whatever_way_it_comes(driver: Driver) -> None:
    for name in "bcd":
        driver.bundle(link(driver, name), tail("p", name), [run("x", "y")])
    assert driver.delivered() == ["x", "y"]
    assert driver.drops() == {"duplicate": 4}


def test_a_restarted_publisher_begins_anew(driver: Driver) -> None:
    for epoch in (1, 2):
        driver.bundle(link(driver, "b"), tail("b", epoch=epoch), [run("x")])
    assert driver.delivered() == ["x", "x"]


def test_after_a_change_of_route_messages_wait_for_earlier_ones_and_not_for_long(driver: Driver) -> None:
    driver.bundle(link(driver, "b"), tail("p", "b", generation=1), [run(0)])
    driver.bundle(link(driver, "c"), tail("p", "c", generation=2), [run(2, first=2)])
    assert driver.delivered() == [0]
    driver.bundle(link(driver, "b"), tail("p", "b", generation=1), [run(1, first=1)])
    assert driver.delivered() == [1, 2]
    driver.bundle(link(driver, "d"), tail("p", "d", generation=3), [run(9, first=9)])
    driver.after(REPAIR_HOLD_S - 0.01)
    assert driver.delivered() == []
    driver.after(0.011)
    assert driver.delivered() == [9]
    assert driver.node.counters["lost"] == 6


def test_a_relay_passes_the_body_on_unread_and_adds_its_time(driver: Driver) -> None:
    b, c, d = (link(driver, name) for name in "bcd")
    way = tail("b", deliver=False, to=[("c", below(True)), ("d", below(False, ("e", below(True))))])
    not_even_a_body: Frame = b"\xc1 whatever this is"
    driver.frames(b, *bundle_frames(way, not_even_a_body, elapsed_us=1000))
    assert driver.delivered() == []
    driver.frames(b, *bundle_frames(way, not_even_a_body, memoryview(b"large"), hop=1, elapsed_us=1000))
    sent = driver.take(SendBundle)
    assert [bundle.link for bundle in sent] == [c, d]
    assert [list(map(bytes, bundle.bundle.body)) for bundle in sent] == [[not_even_a_body, b"large"]] * 2
    driver.now += 0.005
    frames = on_the_wire(sent[0], driver.now)
    assert BUNDLE_HEADER.unpack_from(frames[0])[6] == pytest.approx(6000, abs=2)
    assert driver.node.counters["forwarded"] == 2
    assert driver.drops() == {}


def bundle_frames(way: Tail, *body: Frame, hop: int = 0, elapsed_us: int = 0) -> list[Frame]:
    """A bundle with any body, the small ones in one frame."""
    header = encode_bundle_header(0, hop, 1, elapsed_us, 0, encode_tail(way))
    return [header + bytes(body[0])] if len(body) == 1 else [header, *body]


def test_a_next_peer_without_a_link_is_counted_and_the_others_get_theirs(driver: Driver) -> None:
    driver.bundle(link(driver, "b"), tail("b", to=[("gone", below(True)), ("c", below(True))]), [run(1)])
    assert len([action for action in driver.actions if isinstance(action, SendBundle)]) == 1
    assert driver.delivered() == [1]
    assert driver.drops() == {"no_link": 1}


def test_a_light_client_relays_nothing() -> None:
    driver = Driver("leaf", Config(role=Role.CLIENT))
    b = driver.neighbour("b")
    driver.neighbour("c")
    driver.subscribe("a")
    driver.bundle(b, tail("b", to=[("c", below(True))]), [run(1)])
    assert [action for action in driver.actions if isinstance(action, SendBundle)] == []
    assert driver.delivered() == [1]


def test_a_peer_routes_for_its_light_clients_and_for_nobody_else(driver: Driver) -> None:
    b = link(driver, "b")
    driver.records(b, links_record("b", "me", "p"), links_record("p", "b"))
    client = driver.neighbour("leaf", role="client")
    driver.take(object)
    driver.bundle(client, tail("leaf", deliver=False, destinations=["me", "p", "unknown", "leaf"]), [run(1)])
    (sent,) = [action for action in driver.actions if isinstance(action, SendBundle)]
    assert sent.link == b
    assert driver.delivered() == [1]
    assert driver.drops() == {"no_route": 1}
    driver.bundle(b, tail("b", deliver=False, destinations=["p"]), [run(1)])
    driver.bundle(client, tail("other", deliver=False, destinations=["p"]), [run(1)])
    assert driver.drops() == {"no_route": 1, "conflict": 2}


def test_a_bundle_that_turns_out_malformed_half_way_is_neither_delivered_nor_counted_as_such(
    driver: Driver,
) -> None:
    """What is counted as delivered or forwarded was delivered or forwarded."""
    way = tail("b", to=[("c", below(True))])
    driver.bundle(
        link(driver, "b"), way, [run("good"), run(topic="a", publisher=2), run("after", publisher=3)]
    )
    sent = [action for action in driver.actions if isinstance(action, SendBundle)]
    assert driver.node.counters["delivered"] == len(driver.delivered())
    assert driver.node.counters["forwarded"] == len(sent)
    driver.bundle(link(driver, "b"), tail("b"), [run("good")])
    assert driver.delivered() == ["good"], "taken for a repetition of what never reached the application"


RUNS = st.lists(
    st.tuples(
        st.sampled_from(["a", "a/b", "unwanted"]),
        st.integers(1, 2),
        st.sampled_from([None, None, None, 0, 1, 2, 5]),
        st.integers(1, 2),
        st.sampled_from([1, 1, 1, 2]),
        st.sampled_from([1, 1, 1, 2]),
    )
    | st.sampled_from(["wait", "subscribe", "unsubscribe"]),
    max_size=40,
)
"""(topic, publisher, where to go on or None for the next, count, generation, epoch), or what else happens."""


@settings(max_examples=150)
@given(RUNS)
def test_a_run_that_travels_alone_fares_like_one_in_company(
    steps: list[tuple[str, int, int | None, int, int, int] | str],
) -> None:
    """Short ways for the common case change nothing but the time it takes."""
    alone, company = (Driver(config=STATIC.replace(streams_max=3, held_runs_max=2)) for _ in range(2))
    drivers = (alone, company)
    ends = [driver.neighbour("b") for driver in drivers]
    subscriptions = [[driver.subscribe("a/**")] for driver in drivers]
    following: dict[tuple[int, int], int] = {}
    seen: list[list[object]] = [[], []]
    for step in steps:
        for number, driver in enumerate(drivers):
            if step == "wait":
                driver.after(0.2, answering=[ends[number]])
            elif step == "subscribe":
                subscriptions[number].append(driver.subscribe("a"))
            elif step == "unsubscribe" and subscriptions[number]:
                driver.node.unsubscribe(subscriptions[number].pop(), driver.now)
            elif isinstance(step, tuple):
                topic, publisher, jump, count, generation, epoch = step
                first = following.get((publisher, epoch), 0) if jump is None else jump
                payloads = [f"{first + at}" for at in range(count)]
                way = tail("b", generation=generation, epoch=epoch)
                runs = [run(*payloads, first=first, topic=topic, publisher=publisher)]
                company_run = [run("x", topic="nobody", publisher=9)] if number else []
                driver.bundle(ends[number], way, company_run + runs)
                if number:
                    following[publisher, epoch] = first + count
            seen[number] += [
                (
                    action.subscriptions,
                    action.run.topic,
                    action.run.first_sequence,
                    action.run.payloads,
                    action.run.path,
                )
                for action in driver.take(Deliver)
            ]
    assert seen[0] == seen[1]
    counted = [
        {name: n for name, n in d.node.counters.items() if name != "dropped.no_subscriber"} for d in drivers
    ]
    assert counted[0] == counted[1]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda head, body: [head],
        lambda head, body: [head + body, body],
        lambda head, body: [head[:-1], body],
        lambda head, body: [head[:-1]],
        lambda head, body: [head[:4] + b"\xff\xff\xff\xff" + head[8:] + body],
        lambda head, body: [head[:4] + b"\xff\xff\xff\xff" + head[8:], body],
        lambda head, body: [head[:4] + b"\0\0\0\0" + head[8:], body],
    ],
    ids=["no body", "two bodies", "short tail", "short and alone", "long tail alone", "long tail", "no tail"],
)
def test_a_bundle_whose_parts_do_not_add_up_is_malformed(
    driver: Driver, spoil: Callable[[bytes, bytes], list[Frame]]
) -> None:
    head = encode_bundle_header(0, 0, 0, 0, 0, encode_tail(tail("b")))
    driver.frames(link(driver, "b"), *spoil(head, encode_runs([run(1)])))
    assert driver.drops() == {"malformed": 1}
    assert driver.delivered() == []


# Through a mesh


@pytest.mark.parametrize(
    "payloads", [[b"x"], [{"a": 1}, None, "text", 3.5, [b"y"]], [bytes(100_000), bytes(30_000)]]
)
def test_messages_reach_every_subscriber_through_relays_once(payloads: list[object]) -> None:
    mesh = Mesh(*(Driver(name) for name in "abcde"))
    for here, there in ("ab", "bc", "cd", "ca", "de"):
        mesh.connect(here, there)
    for name in "acde":
        mesh.drivers[name].subscribe("t/*")
    mesh.settle()
    mesh.publish("a", "t/x", *payloads)
    for name in "acde":
        assert mesh.received(name) == payloads
    assert mesh.received("b") == []
    assert all(driver.drops() == {} for driver in mesh.drivers.values())


def test_a_light_client_publishes_and_receives_like_a_peer() -> None:
    mesh = Mesh(
        Driver("a"),
        Driver("b"),
        Driver("leaf", Config(role=Role.CLIENT)),
        Driver("twig", Config(role=Role.CLIENT)),
    )
    mesh.connect("a", "b")
    mesh.connect("leaf", "a")
    mesh.connect("twig", "b")
    for name, driver in mesh.drivers.items():
        driver.subscribe(f"from/{'twig' if name == 'leaf' else 'leaf'}")
    mesh.settle()
    mesh.publish("leaf", "from/leaf", 1, 2)
    mesh.publish("twig", "from/twig", 3)
    assert [mesh.received(name) for name in ("a", "b", "leaf", "twig")] == [[1, 2], [1, 2], [3], [1, 2]]


def test_a_dead_relay_is_routed_around() -> None:
    mesh = Mesh(*(Driver(name) for name in "abcd"))
    for here, there in ("ab", "bd", "ac", "cd"):
        mesh.connect(here, there)
    mesh.drivers["d"].subscribe("t")
    mesh.settle()
    first = mesh.drivers["a"].node.routes.path("d")[1]
    mesh.publish("a", "t", 1)
    mesh.cut("a", first)
    mesh.publish("a", "t", 2)
    assert mesh.received("d") == [1, 2]
    mesh.cut("a", "bc".replace(first, ""))
    mesh.publish("a", "t", 3)
    assert mesh.received("d") == []
    assert mesh.drivers["a"].drops()["no_route"] == 1


def test_subscribing_and_cancelling_take_effect_everywhere() -> None:
    mesh = Mesh(Driver("a"), Driver("b"))
    mesh.connect("a", "b")
    mesh.publish("a", "t", 0)
    subscription = mesh.drivers["b"].subscribe("t")
    mesh.settle()
    mesh.publish("a", "t", 1)
    mesh.drivers["b"].node.unsubscribe(subscription, mesh.drivers["b"].now)
    mesh.drivers["b"].actions += mesh.drivers["b"].node.take_actions()
    mesh.settle()
    mesh.publish("a", "t", 2)
    assert mesh.received("b") == [1]
    assert mesh.drivers["a"].node.counters["published_unwanted"] == 2


def test_interests_heard_of_before_the_path_are_used_once_there_is_one(driver: Driver) -> None:
    driver.records(link(driver, "b"), wants_record("p", "t"))
    assert driver.node.destinations("t") == ()
    driver.records(link(driver, "b"), links_record("b", "me", "p"), links_record("p", "b"))
    assert driver.node.destinations("t") == ("p",)
