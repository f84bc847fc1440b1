"""Whatever a neighbour sends: nothing raises, refusals have their reason, tables keep to their bounds."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support_frames import ANYTHING
from support_nodes import Driver, below, run, tail, wants_record

from anabranch.overlay.actions import Deliver, SendBundle
from anabranch.overlay.asking import Protocol
from anabranch.overlay.codec import encode_bundle_header, encode_control, encode_probe, encode_tail
from anabranch.overlay.config import Config
from anabranch.overlay.delivering import OVERHEAD_MAX_BYTES
from anabranch.overlay.headers import Digest, Flag, Hello, Inspect, Kind, RecordKind, Records, Run, Want
from anabranch.overlay.identifiers import LinkId
from anabranch.overlay.qos import Role
from anabranch.overlay.replywire import Request, encode_items, encode_value

SMALL = Config(
    neighbours_target=0,
    links_max=4,
    links_opening_max=4,
    records_max=12,
    record_body_max_bytes=200,
    patterns_max=4,
    streams_max=4,
    held_runs_max=3,
    cache_max=4,
    payload_max_bytes=2000,
    bundle_max_bytes=1000,
)
"""Every bound within reach."""


def victim(config: Config = SMALL) -> tuple[Driver, LinkId]:
    """A node that wants topic `a`, and its neighbours b and c; b is the attacker."""
    driver = Driver(config=config)
    link = driver.neighbour("b")
    driver.neighbour("c")
    driver.subscribe("a")
    driver.take(object)
    return driver, link


def check_bounds(driver: Driver) -> None:
    """Every table within its bound of the configuration."""
    node, config = driver.node, driver.node.config
    delivering, matching, routes = node._delivering, node.matching, node.routes
    assert len(node.links.by_peer) <= config.links_max
    assert len(node.links) <= config.links_max + config.links_opening_max
    assert len(node.book) <= config.records_max + len(RecordKind)
    assert len(delivering.streams) <= config.streams_max
    for stream in delivering.streams._streams.values():
        assert len(stream.held) <= config.held_runs_max
    for cache in (
        delivering._forwarding.plans,
        delivering._forwarding._attached,
        matching._peers,
        matching._subscriptions,
        routes._routes,
        routes._stale,
    ):
        assert len(cache) <= config.cache_max
    for origin in node.book.origins():
        assert len(node.interests.patterns_of(origin)) <= config.patterns_max
        assert len(node.topology.announced(origin)) <= 4 * config.links_max


# Anything at all


@settings(max_examples=300)
@given(
    st.lists(ANYTHING | st.sampled_from([0.01, 0.3, 2.0]), min_size=1, max_size=12),
    st.sampled_from(list(Role)),
)
def test_no_sequence_of_frames_raises_or_breaks_an_invariant(
    steps: list[list[bytes] | float], role: Role
) -> None:
    driver, link = victim(SMALL.replace(role=role))
    for step in steps:
        if isinstance(step, float):
            driver.after(step)
        else:
            driver.frames(link, *step)
            if driver.node.links.get(link) is None:
                link = driver.neighbour("b")
        check_bounds(driver)
    driver.control(link, Kind.INSPECT, Inspect(1))
    driver.after(1.0)


@settings(max_examples=200)
@given(ANYTHING)
def test_before_the_hello_everything_else_is_refused(frames: list[bytes]) -> None:
    driver = Driver(config=SMALL)
    driver.subscribe("a")
    link = driver.opened()
    driver.take(object)
    driver.frames(link, *frames)
    kind = frames[0][1] if frames and len(frames[0]) > 1 and frames[0][0] == 1 else None
    if kind not in (Kind.HELLO, Kind.BYE):
        assert sum(driver.drops().values()) == 1
    assert driver.delivered() == []
    assert driver.node.book.origins() <= {"me"}


@pytest.mark.parametrize("seed", range(3))
def test_a_flood_of_noise_is_counted_frame_by_frame(seed: int) -> None:
    rng = random.Random(seed)
    driver, link = victim()
    for _ in range(2000):
        driver.node.receive(link, [b"\x01\x01" + rng.randbytes(rng.randrange(60))], driver.now)
    driver.after(0.0)
    assert sum(driver.drops().values()) == 2000
    assert driver.delivered() == []


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([], "malformed"),
        ([b""], "malformed"),
        ([b"\x01"], "malformed"),
        ([b"\x02\x01" + bytes(50)], "version"),
        ([b"\x00\x03"], "version"),
        ([b"GET / HTTP/1.1\r\n"], "version"),
        ([b"\x01\x00"], "version"),
        ([b"\x01\x63"], "version"),
        ([b"\x01\x01"], "malformed"),
        ([b"\x01\x01" + bytes(100)], "malformed"),
        ([b"\x01\x03"], "malformed"),
        ([encode_probe(1, 2) + b"x"], "malformed"),
        ([encode_probe(1, 2)[:-1]], "malformed"),
        ([b"\x01\x04"], "malformed"),
        ([b"\x01\x05"], "malformed"),
        ([b"\x01\x06\xc0"], "malformed"),
        ([b"\x01\x05" + b"\x91" * 3000], "malformed"),
        ([b"\x01\x06\x92\xdd\xff\xff\xff\xff"], "malformed"),
        ([encode_control(Kind.WANT, Want([])), b"more"], "malformed"),
    ],
)
def test_each_kind_of_nonsense_has_its_reason(frames: list[bytes], reason: str) -> None:
    driver, link = victim()
    driver.frames(link, *frames)
    assert driver.drops() == {reason: 1}


def test_a_link_that_was_never_opened_has_no_session() -> None:
    driver, _ = victim()
    driver.frames(LinkId(999), encode_probe(1, 2))
    assert driver.drops() == {"no_session": 1}
    driver.closed(LinkId(999))


def test_data_before_the_hello_is_not_delivered() -> None:
    driver, _ = victim()
    link = driver.opened()
    driver.bundle(link, tail("x"), [run(1)])
    assert driver.drops() == {"no_session": 1}
    assert driver.delivered() == []


# Bundles


def test_a_replayed_bundle_is_refused_by_its_link() -> None:
    driver, link = victim()
    for _ in range(3):
        driver.bundle(link, tail("b"), [run("x")], hop=7)
    assert driver.delivered() == ["x"]
    assert driver.drops() == {"replayed": 2}


def test_a_recorded_stream_played_again_under_new_hops_is_delivered_once() -> None:
    driver, link = victim()
    for _ in range(2):
        for sequence in range(20):
            driver.bundle(link, tail("b"), [run(sequence, first=sequence)])
    assert driver.delivered() == list(range(20))
    assert driver.drops() == {"duplicate": 20}


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_an_oversized_bundle_is_refused(frames: int) -> None:
    driver, link = victim()
    limit = SMALL.payload_max_bytes + SMALL.bundle_max_bytes + OVERHEAD_MAX_BYTES
    header = encode_bundle_header(0, 0, 0, 0, 0, encode_tail(tail("b")))
    parts = {1: [header + bytes(limit)], 2: [header, bytes(limit)], 3: [header, b"\x90", bytes(limit)]}
    driver.frames(link, *parts[frames])
    assert driver.drops() == {"oversized": 1}


def test_the_largest_payload_that_may_be_put_is_not_oversized() -> None:
    driver, link = victim()
    way = tail("b")
    large = bytes(SMALL.payload_max_bytes)
    driver.bundle(link, way, [Run("a", 1, 0, [None], [(0, 1, False)])], large)
    assert driver.delivered() == [large]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x91\xc0",
        b"\x91\x94\xa1a\x01\x00" + b"\x91" * 3000,
        b"\xdd\xff\xff\xff\xff",
        b"\x91\x94\xa1a\x01\x00\xdd\xff\xff\xff\xff",
        b"\x91\x94\xa1a\x01\x00\x90",
        b"\x91\x94\xa1a\x01\xff\x91\x01",
        b"\x91\x94\xa1a\x01\xcf" + b"\xff" * 8 + b"\x91\x01",
        b"\x91\x94\xa1a\xc0\x00\x91\x01",
        b"\x91\x94\xa1\xff\x01\x00\x91\x01",
    ],
    ids=[
        "none",
        "reserved",
        "nil run",
        "deep",
        "huge",
        "huge run",
        "empty run",
        "negative",
        "beyond",
        "nil",
        "utf8",
    ],
)
def test_a_body_that_cannot_be_is_malformed(body: bytes) -> None:
    driver, link = victim()
    header = encode_bundle_header(0, 0, 0, 0, 0, encode_tail(tail("b")))
    driver.frames(link, header, body)
    assert driver.drops() == {"malformed": 1}
    assert driver.delivered() == []


@pytest.mark.parametrize("topic", ["", "a/*", "**", "a//b", "/", "x" * 300, "/".join("a" * 200), "a\nb"])
def test_what_cannot_be_published_cannot_be_received(topic: str) -> None:
    driver, link = victim()
    driver.subscribe("**")
    driver.bundle(link, tail("b"), [run(1, topic=topic)])
    assert driver.delivered() == []
    assert driver.drops() == {"malformed": 1}


def test_a_bundle_comes_from_the_neighbour_that_sent_it() -> None:
    """Nobody can speak in the name of a peer that its bundle never passed."""
    driver, link = victim()
    for forged in (tail("c"), tail("x"), tail("b", "x"), tail("x", "c")):
        driver.bundle(link, forged, [run("forged")])
    assert driver.delivered() == []
    assert driver.drops() == {"conflict": 4}
    driver.bundle(link, tail("x", "b"), [run("relayed")])
    assert driver.delivered() == ["relayed"]


def test_a_light_client_publishes_in_its_own_name_only() -> None:
    driver, _ = victim()
    client = driver.neighbour("leaf", role="client")
    driver.bundle(client, tail("c", "leaf"), [run("forged")])
    assert driver.delivered() == []
    assert driver.drops() == {"conflict": 1}


def test_a_bundle_in_our_own_name_is_refused() -> None:
    driver, link = victim()
    driver.bundle(link, tail("me", "b"), [run("forged")])
    assert driver.drops() == {"malformed": 1}


def test_a_second_request_under_a_number_in_use_is_refused() -> None:
    """The first only passes here; the other asks us, whom the first does not know."""
    driver, link = victim()
    for hop, (sites, is_for_us) in enumerate(((["c"], False), (["c", "me"], True))):
        way = tail("b", to=[("c", below(True))], deliver=is_for_us)
        named = encode_value(sites)
        asked = Request("b", 1, 1, "a", encode_value(1), named, Protocol.CONVERGE, "", [], 10**6, 1)
        head = encode_bundle_header(Flag.REQUEST, hop, hop, 0, 0, encode_tail(way))
        driver.frames(link, head + encode_items([asked]))
    assert driver.drops() == {"conflict": 1}


@pytest.mark.parametrize("sites", [[], ["me", "me"], ["me", "no name"], "me", [1]])
def test_a_request_with_a_list_of_sites_that_makes_no_sense_is_malformed(sites: object) -> None:
    driver, link = victim()
    asked = Request("b", 1, 1, "a", encode_value(1), encode_value(sites), Protocol.CONVERGE, "", [], 10**6, 1)
    head = encode_bundle_header(Flag.REQUEST, 0, 0, 0, 0, encode_tail(tail("b", deliver=True)))
    driver.frames(link, head + encode_items([asked]))
    assert driver.drops() == {"malformed": 1}


def test_one_bundle_does_not_become_many_to_the_same_neighbour() -> None:
    driver, link = victim()
    driver.bundle(link, tail("b", to=[("c", below(True))] * 4), [run(1)])
    assert len([action for action in driver.actions if isinstance(action, SendBundle)]) <= 1


def test_a_deep_route_is_cut_where_paths_end() -> None:
    subtree = below(True)
    for number in range(3000):
        subtree = below(False, (f"p{number}", subtree))
    driver, link = victim()
    driver.bundle(link, tail("b", to=[("c", subtree)]), [run(1)])
    driver.bundle(link, tail(*[f"p{number}" for number in range(200)], "b"), [run(1)])
    assert driver.drops()["malformed"] >= 1


def test_tails_are_remembered_within_bounds_of_bytes_too() -> None:
    driver, link = victim(Config(neighbours_target=0))
    for number in range(20):
        way = tail("b", destinations=[f"{number}-{'x' * 50}-{name}" for name in range(15_000)])
        driver.bundle(link, way, [run(1)])
    remembered = sum(map(len, driver.node._delivering._forwarding.plans))
    assert remembered < 4 * 1024 * 1024


def test_jumping_sequences_do_not_make_numbers_that_cannot_be_told() -> None:
    driver, link = victim(SMALL.replace(streams_max=100))
    for publisher in range(1, 40):
        driver.bundle(link, tail("b"), [run(1, first=0, publisher=publisher)])
        driver.bundle(link, tail("b"), [run(1, first=2**62 - 1, publisher=publisher)])
    driver.control(link, Kind.INSPECT, Inspect(1))
    assert len(driver.told(link, Kind.REPORT)) == 1
    driver.after(30.0, answering=[link])


# Floods


def test_a_flood_of_streams_keeps_to_the_table() -> None:
    driver, link = victim()
    for publisher in range(300):
        driver.bundle(link, tail("b", generation=1), [run(0, publisher=publisher)])
        driver.bundle(link, tail("b", generation=publisher), [run(9, first=9, publisher=publisher)])
        check_bounds(driver)
    driver.after(1.0, answering=[link])


def test_a_flood_of_held_runs_keeps_to_the_stream() -> None:
    driver, link = victim()
    driver.bundle(link, tail("b", generation=1), [run(0)])
    for sequence in range(10, 400, 3):
        driver.bundle(link, tail("b", generation=2), [run(sequence, first=sequence)])
        check_bounds(driver)


def test_a_flood_of_topics_tails_and_receivers_keeps_to_the_caches() -> None:
    driver, link = victim()
    client = driver.neighbour("leaf", role="client")
    for number in range(200):
        driver.bundle(link, tail("b", generation=number), [run(1, topic=f"t{number}")])
        driver.bundle(client, tail("leaf", deliver=False, destinations=[f"p{number}"]), [run(1)])
        check_bounds(driver)


def test_a_flood_of_connections_keeps_to_the_tables() -> None:
    driver, _ = victim()
    for number in range(200):
        link = driver.opened()
        if number % 2:
            driver.control(link, Kind.HELLO, Hello(f"p{number}", 1, "peer", 1))
        check_bounds(driver)
    assert driver.drops()["table_full"] > 150
    driver.after(SMALL.hello_timeout_s + 2.0)
    assert len(driver.node.links) == 0


def test_a_flood_of_records_keeps_to_the_book() -> None:
    """Checked without `records_max`."""
    driver, link = victim()
    for number in range(300):
        driver.records(link, wants_record(f"p{number}", *(f"t{n}" for n in range(9))))
        check_bounds(driver)
    assert driver.drops()["table_full"] > 250


def test_a_large_control_message_is_answered_in_proportion() -> None:
    driver, link = victim()
    entries = [(f"p{number}", 2, 1, 1) for number in range(5000)]
    driver.control(link, Kind.DIGEST, Digest(entries, True))
    driver.control(link, Kind.WANT, Want([("me", 1)] * 5000))
    asked = sum(len(want.entries) for want in driver.told(link, Kind.WANT) if isinstance(want, Want))
    assert asked <= SMALL.records_max
    assert len([batch for batch in driver.told(link, Kind.RECORDS) if isinstance(batch, Records)]) <= 3


def test_after_all_of_it_honest_traffic_still_passes() -> None:
    driver, link = victim()
    rng = random.Random(7)
    for _ in range(500):
        driver.frames(link, bytes((1, rng.choice((1, 3, 4, 5, 6, 7, 10, 11, 12)))) + rng.randbytes(20))
    driver.bundle(link, tail("b"), [run("fine")], hop=10**6)
    deliveries = [action for action in driver.actions if isinstance(action, Deliver)]
    assert [action.run.payloads for action in deliveries] == [["fine"]]
