"""From `put` to bundles: what leaves together, what stays here, what is counted instead."""

import pytest
from support_nodes import Driver, Mesh, links_record, on_the_wire, wants_record

from anabranch.overlay.actions import Deliver, SendBundle
from anabranch.overlay.codec import decode_runs, decode_tail
from anabranch.overlay.config import Config
from anabranch.overlay.errors import UsageError
from anabranch.overlay.headers import BUNDLE_HEADER, Congestion, Kind
from anabranch.overlay.identifiers import LinkId
from anabranch.overlay.outlets import MESSAGE_BYTES, Outlet
from anabranch.overlay.qos import Demand, Role

STATIC = Config(neighbours_target=0)


def wanting(config: Config = STATIC, *peers: str) -> tuple[Driver, dict[str, LinkId]]:
    """A node with neighbours that want everything."""
    driver = Driver(config=config)
    links = {peer: driver.neighbour(peer) for peer in peers or ("b",)}
    for peer, link in links.items():
        driver.records(link, wants_record(peer, "**"))
    driver.take(object)
    return driver, links


def opened(driver: Driver, topic: str = "a", deadline_s: float = 0.0) -> Outlet:
    return driver.node.open_publisher(topic, driver.now, Demand(deadline_s))


def put(driver: Driver, outlet: Outlet, *payloads: object) -> list[SendBundle]:
    """What leaves when these are put in one turn."""
    for payload in payloads:
        driver.put(outlet, payload)
    driver.flush()
    return driver.take(SendBundle)


def test_what_is_put_in_one_turn_travels_as_one_bundle_in_order() -> None:
    driver, links = wanting()
    one, two = opened(driver), opened(driver, "x/y")
    for number in range(3):
        driver.put(one, number)
        driver.put(two, b"%d" % number)
    driver.flush()
    (sent,) = driver.take(SendBundle)
    assert sent.link == links["b"]
    assert sent.bundle.messages == 6
    runs = decode_runs(sent.bundle.body)
    assert [(run.topic, run.first_sequence, run.payloads) for run in runs] == [
        ("a", 0, [0, 1, 2]),
        ("x/y", 0, [b"0", b"1", b"2"]),
    ]
    assert runs[0].publisher != runs[1].publisher
    (again,) = put(driver, one, 3)
    assert decode_runs(again.bundle.body)[0].first_sequence == 3
    assert again.bundle.sequence > sent.bundle.sequence
    driver.flush()
    assert driver.take(SendBundle) == []


def test_one_body_serves_all_branches() -> None:
    driver, links = wanting(STATIC, "b", "c", "d")
    sent = put(driver, opened(driver), b"x")
    assert {bundle.link for bundle in sent} == set(links.values())
    assert len({id(bundle.bundle.body[0]) for bundle in sent}) == 1
    assert driver.node.counters["published"] == 1


def test_different_deadlines_travel_apart_with_the_time_already_spent() -> None:
    driver, _ = wanting()
    outlets = [opened(driver, "a", deadline_s) for deadline_s in (0.0, 0.05, 0.05)]
    for outlet in outlets:
        driver.put(outlet, b"x")
    driver.now += 0.010
    driver.flush()
    sent = driver.take(SendBundle)
    headers = [BUNDLE_HEADER.unpack_from(on_the_wire(bundle, driver.now)[0]) for bundle in sent]
    assert sorted(header[7] for header in headers) == [0, 50_000]
    assert [header[6] for header in headers] == pytest.approx([10_000] * 2, abs=2)


def test_large_payloads_travel_as_frames_of_their_own_uncopied() -> None:
    driver, _ = wanting(STATIC.replace(inline_max_bytes=100))
    large, value = bytes(1000), ["v" * 1000]
    (sent,) = put(driver, opened(driver), b"small", large, value, b"end")
    assert len(sent.bundle.body) == 3
    assert sent.bundle.body[1] is large
    assert decode_runs(sent.bundle.body)[0].payloads == [b"small", large, value, b"end"]


def test_local_subscribers_get_the_same_values_without_the_wire() -> None:
    driver, _ = wanting(STATIC.replace(inline_max_bytes=100))
    one, two = driver.subscribe("a"), driver.subscribe("*")
    driver.subscribe("other")
    outlet = opened(driver)
    for payload in (b"x", {"k": [1, None]}, bytes(500)):
        driver.put(outlet, payload)
    driver.flush()
    (delivered,) = [action for action in driver.actions if isinstance(action, Deliver)]
    assert delivered.subscriptions == (one, two)
    assert delivered.run.payloads == [b"x", {"k": [1, None]}, bytes(500)]
    assert (delivered.run.origin, delivered.run.path) == ("me", ("me",))
    (sent,) = driver.take(SendBundle)
    assert decode_runs(sent.bundle.body)[0].payloads == delivered.run.payloads


def test_what_nobody_wants_or_nobody_can_get_is_counted() -> None:
    driver = Driver()
    assert put(driver, opened(driver), 1, 2) == []
    assert driver.node.counters["published_unwanted"] == 2
    link = driver.neighbour("b")
    driver.records(link, wants_record("b", "a"), wants_record("p", "a"), wants_record("q", "a"))
    assert len(put(driver, opened(driver), 1, 2, 3)) == 1
    assert driver.drops() == {"no_route": 6}
    driver.closed(link)
    assert put(driver, opened(driver), 1) == []
    assert driver.drops() == {"no_route": 9}


def test_a_route_changes_with_the_mesh_and_with_what_peers_want() -> None:
    driver, links = wanting(STATIC, "b", "c")
    driver.records(links["b"], links_record("b", "me", "p"), links_record("p", "b"))
    outlet = opened(driver, "only/p")
    driver.records(links["b"], wants_record("b", "x", sequence=2), wants_record("p", "only/*"))
    driver.records(links["c"], wants_record("c", "x", sequence=2))
    (sent,) = put(driver, outlet, 1)
    assert sent.link == links["b"]
    assert not decode_tail(sent.bundle.tail).deliver
    driver.records(links["b"], wants_record("p", sequence=2))
    assert put(driver, outlet, 2) == []


def test_a_light_client_sends_everything_to_its_peer_or_counts_it() -> None:
    driver = Driver("leaf", Config(role=Role.CLIENT))
    link = driver.neighbour("b")
    driver.records(link, wants_record("p", "a"), wants_record("q", "a"))
    driver.take(object)
    (sent,) = put(driver, opened(driver), 1)
    assert sent.link == link
    assert decode_tail(sent.bundle.tail).destinations == ["p", "q"]
    driver.closed(link)
    assert put(driver, opened(driver), 1, 2) == []
    assert driver.drops() == {"no_route": 4}


def test_publishers_and_subscriptions_are_bounded_and_come_free_again() -> None:
    driver = Driver(config=STATIC.replace(publishers_max=2, subscriptions_max=2))
    outlets = [opened(driver) for _ in range(2)]
    with pytest.raises(UsageError, match="publishers_max"):
        opened(driver)
    driver.node.close_publisher(outlets[0], driver.now)
    fresh = opened(driver)
    assert fresh.publisher not in {outlet.publisher for outlet in outlets}
    first = driver.subscribe("a")
    driver.subscribe("a")
    with pytest.raises(UsageError, match="subscriptions_max"):
        driver.subscribe("b")
    driver.node.unsubscribe(first, driver.now)
    assert driver.subscribe("b") != first


def test_what_was_put_before_a_publisher_closed_still_leaves() -> None:
    driver, _ = wanting()
    outlet = opened(driver)
    driver.put(outlet, b"last words")
    driver.node.close_publisher(outlet, driver.now)
    (sent,) = [action for action in driver.node.take_actions() if isinstance(action, SendBundle)]
    assert decode_runs(sent.bundle.body)[0].payloads == [b"last words"]


@pytest.mark.parametrize("topic", ["", "a/*", "/a", "a\0"])
def test_a_topic_that_cannot_be_published_to_is_the_callers_mistake(topic: str) -> None:
    with pytest.raises(UsageError, match="topic"):
        opened(Driver(), topic)


def test_many_publishers_of_one_turn_send_no_bundle_that_a_receiver_refuses() -> None:
    config = STATIC.replace(payload_max_bytes=1000, bundle_max_bytes=1000)
    mesh = Mesh(Driver("a", config), Driver("b", config))
    mesh.connect("a", "b")
    mesh.drivers["b"].subscribe("**")
    mesh.settle()
    publisher = mesh.drivers["a"]
    for number in range(400):
        publisher.put(opened(publisher, f"t{number}"), bytes(999))
    publisher.flush()
    mesh.settle()
    assert mesh.drivers["b"].drops() == {}
    assert len(mesh.received("b")) == 400


def test_a_large_bundle_keeps_what_it_holds_while_the_next_is_made() -> None:
    driver, _ = wanting()
    outlet = opened(driver)
    sent = [put(driver, outlet, *[bytes([number]) * 1000] * 50)[0].bundle for number in range(3)]
    for number, bundle in enumerate(sent):
        assert decode_runs(bundle.body)[0].payloads == [bytes([number]) * 1000] * 50


def test_a_shell_says_where_large_bodies_are_kept() -> None:
    kept: list[bytes] = []
    driver, _ = wanting()
    driver.node.keep_bodies(lambda buffer: kept.append(bytes(buffer)) or kept[-1])
    outlet = opened(driver)
    (large,) = put(driver, outlet, *[bytes(1000)] * 50)
    assert large.bundle.body == kept
    put(driver, outlet, b"small")
    assert len(kept) == 1


def test_a_bundle_weighs_at_least_what_it_holds() -> None:
    """Queues are bounded by this number: empty payloads cost memory too."""
    driver, _ = wanting()
    outlet = opened(driver)
    for payloads in ([b""] * 10_000, [None] * 10_000, [b"x"] * 100):
        for sent in put(driver, outlet, *payloads):
            assert sent.bundle.size >= sum(map(len, sent.bundle.body))


def test_a_turn_of_empty_messages_fills_bundles_too() -> None:
    """A shell flushes an outlet that is full; one that never is would grow until the turn ends."""
    config = STATIC.replace(payload_max_bytes=1000, bundle_max_bytes=1000)
    driver, _ = wanting(config)
    outlet = opened(driver)
    for _ in range(1000):
        driver.put(outlet, b"")
    assert outlet.room <= 0


# Places: what a shell may append without an account of each message


def test_places_take_of_the_room_what_messages_of_their_size_take() -> None:
    driver, _ = wanting()
    one_by_one, placed = opened(driver), opened(driver, "b")
    for outlet in (one_by_one, placed):
        driver.put(outlet, bytes(100))
    assert placed.fits == 128
    for _ in range(5):
        driver.put(one_by_one, bytes(128))
        next(placed.places)
        placed.payloads.append(bytes(128))
    assert placed.held_bytes == one_by_one.held_bytes
    for outlet in (one_by_one, placed):
        driver.put(outlet, bytes(3000))  # too large for a place: those that are left are given back
        assert not list(outlet.places)
    assert (placed.room, placed.held_bytes) == (one_by_one.room, one_by_one.held_bytes)
    driver.flush()
    (sent,) = driver.take(SendBundle)
    assert [len(run.payloads) for run in decode_runs(sent.bundle.body)] == [7, 7]


@pytest.mark.parametrize("size", [0, 64, 704, 9_984])
def test_a_bundle_of_places_alone_is_full_and_no_larger_than_allowed(size: int) -> None:
    config = STATIC.replace(payload_max_bytes=20_000, bundle_max_bytes=20_000)
    driver, _ = wanting(config)
    outlet = opened(driver)
    driver.put(outlet, bytes(size))
    outlet.payloads += [bytes(size) for _ in outlet.places]
    assert 0 <= 20_000 - outlet.held_bytes < size + MESSAGE_BYTES
    driver.flush()
    (sent,) = driver.take(SendBundle)
    assert sum(map(len, sent.bundle.body)) <= 20_000
    assert not list(outlet.places), "the first of the next turn goes another way"


def test_no_place_is_left_for_payloads_that_travel_alone_or_once_a_peer_is_sealed() -> None:
    driver, _ = wanting()
    large, small = opened(driver), opened(driver, "b")
    driver.put(large, bytes(driver.node.config.inline_max_bytes + 1))
    driver.put(small, b"x")
    driver.node.seal()
    assert not list(large.places)
    assert not list(small.places)
    assert small.room == 0


# The express way: one publication, one link, nothing waiting


def test_express_sends_what_the_usual_way_would_send() -> None:
    (fast, _), (slow, _) = wanting(), wanting()
    outlets = [opened(driver, "a", 0.05) for driver in (fast, slow)]
    assert put(fast, outlets[0], b"0")[0].bundle == put(slow, outlets[1], b"0")[0].bundle
    for payload in (b"1", b"", b"x" * 50):
        sent = fast.node.express(outlets[0], payload, fast.now)
        (usual,) = put(slow, outlets[1], payload)
        assert sent == usual
    assert put(fast, outlets[0], b"last")[0].bundle == put(slow, outlets[1], b"last")[0].bundle
    assert fast.node.counters == slow.node.counters


def test_express_arrives_in_order_among_the_others() -> None:
    mesh = Mesh(Driver("a"), Driver("b"))
    mesh.connect("a", "b")
    mesh.drivers["b"].subscribe("t")
    mesh.settle()
    a = mesh.drivers["a"]
    outlet = opened(a, "t")
    for number in range(20):
        sent = a.node.express(outlet, b"%d" % number, a.now) if number % 3 else None
        if sent is None:
            a.put(outlet, b"%d" % number)
            a.flush()
        else:
            a.actions.append(sent)
        mesh.settle()
    assert mesh.received("b") == [b"%d" % number for number in range(20)]
    assert mesh.drivers["b"].drops() == {}


def test_express_is_refused_wherever_something_else_is_to_be_done() -> None:
    driver, links = wanting()
    outlet, other = opened(driver), opened(driver)
    assert driver.node.express(outlet, b"x", driver.now) is None, "nobody looked for receivers yet"
    put(driver, outlet, b"x")
    assert driver.node.express(outlet, b"x", driver.now) is not None
    driver.put(other, b"x")
    assert driver.node.express(outlet, b"x", driver.now) is None, "others wait"
    driver.flush()
    subscription = driver.subscribe("a")
    assert driver.node.express(outlet, b"x", driver.now) is None, "who wants it has changed"
    put(driver, outlet, b"x")
    assert driver.node.express(outlet, b"x", driver.now) is None, "our own application wants it"
    driver.node.unsubscribe(subscription, driver.now)
    second = driver.neighbour("c")
    driver.records(second, wants_record("c", "a"))
    put(driver, outlet, b"x")
    assert driver.node.express(outlet, b"x", driver.now) is None, "two ways"
    driver.closed(second)
    put(driver, outlet, b"x")
    assert driver.node.express(outlet, b"x", driver.now) is None, (
        "one that cannot be reached is to be counted"
    )
    driver.records(links["b"], wants_record("c", sequence=2))
    put(driver, outlet, b"x")
    assert driver.node.express(outlet, b"x", driver.now) is not None
    driver.control(links["b"], Kind.CONGESTION, Congestion("b", "b", 50_000, []))
    assert driver.node.express(outlet, b"x", driver.now) is None, "a pause is to be told"
    driver.after(2.0, answering=[links["b"]])
    put(driver, outlet, b"x")
    assert driver.node.express(outlet, b"x", driver.now) is not None
    driver.closed(links["b"])
    assert driver.node.express(outlet, b"x", driver.now) is None, "no link"


def test_express_avoids_a_suspect_link() -> None:
    driver, links = wanting(STATIC, "b", "c")
    driver.records(links["c"], wants_record("c", sequence=2))
    driver.records(links["b"], links_record("b", "me", "c"))
    driver.records(links["c"], links_record("c", "me", "b"))
    outlet = opened(driver)
    (sent,) = put(driver, outlet, b"x")
    assert sent.link == links["b"]
    driver.after(0.8, answering=[links["c"]])
    assert driver.node.express(outlet, b"x", driver.now) is None
    (sent,) = put(driver, outlet, b"x")
    assert sent.link == links["c"]
    again = driver.node.express(outlet, b"x", driver.now)
    assert again is not None
    assert again.link == links["c"]


def test_a_light_client_has_no_express() -> None:
    driver = Driver("leaf", Config(role=Role.CLIENT))
    driver.records(driver.neighbour("b"), wants_record("p", "a"))
    outlet = opened(driver)
    put(driver, outlet, b"x")
    assert driver.node.express(outlet, b"x", driver.now) is None
