"""Records through the mesh: the newest wins everywhere, nothing goes in circles, no name is stolen."""

import random
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support_nodes import Driver, Mesh, links_record, record, wants_record

from anabranch.overlay.actions import Action, SendControl
from anabranch.overlay.codec import encode_probe, encode_records
from anabranch.overlay.config import Config
from anabranch.overlay.duties import Duties
from anabranch.overlay.headers import Digest, Hello, Inspect, Kind, Record, RecordKind, Records, Want
from anabranch.overlay.identifiers import LinkId
from anabranch.overlay.qos import Role
from anabranch.security.signing import NullVerifier

STATIC = Config(neighbours_target=0)
ORIGINS = ("p", "q", "r")
BOOKS = st.dictionaries(
    st.tuples(st.sampled_from(ORIGINS), st.sampled_from([2, 3])),
    st.tuples(st.integers(1, 2), st.integers(1, 3)),
    max_size=6,
)
"""What a peer heard before: (origin, kind) -> (epoch, sequence)."""


def passed_on(driver: Driver, link: LinkId) -> list[tuple[str, int, int]]:
    """(origin, kind, sequence) of the records that left for a link, own ones left out."""
    batches = driver.told(link, Kind.RECORDS)
    return [
        (record.origin, record.kind, record.sequence)
        for batch in batches
        if isinstance(batch, Records)
        for record in batch.records
        if record.origin != driver.node.peer
    ]


def book_of(driver: Driver, *origins: str) -> dict[tuple[str, int], tuple[int, int]]:
    return {
        (held.origin, held.kind): (held.epoch, held.sequence)
        for held in driver.node.book
        if not origins or held.origin in origins
    }


def test_a_new_record_is_passed_to_all_but_its_source_and_an_old_one_to_nobody() -> None:
    driver = Driver()
    source, other, third = driver.neighbour("b"), driver.neighbour("c"), driver.neighbour("d")
    driver.take(object)
    driver.records(source, wants_record("p", "a", sequence=4))
    assert passed_on(driver, source) == []
    assert passed_on(driver, other) == passed_on(driver, third) == [("p", 2, 4)]
    driver.take(object)
    for sequence in (4, 3):
        driver.records(other, wants_record("p", "x", sequence=sequence))
    assert driver.take(SendControl) == []
    assert driver.node.interests.patterns_of("p") == {"a"}
    assert driver.drops() == {}, "a record we have already is how flooding ends"


@given(st.permutations([(1, 1), (1, 2), (2, 1), (2, 3), (3, 1)]))
def test_the_newest_record_counts_in_any_order_of_arrival(order: list[tuple[int, int]]) -> None:
    driver = Driver()
    link = driver.neighbour("b")
    for epoch, sequence in order:
        driver.records(link, wants_record("p", f"e{epoch}/s{sequence}", epoch=epoch, sequence=sequence))
    assert driver.node.interests.patterns_of("p") == {"e3/s1"}


@settings(max_examples=60)
@given(BOOKS, BOOKS)
def test_two_peers_that_meet_hold_the_newest_of_both(
    mine: dict[tuple[str, int], tuple[int, int]], yours: dict[tuple[str, int], tuple[int, int]]
) -> None:
    drivers = {}
    for name, heard in (("a", mine), ("b", yours)):
        drivers[name] = driver = Driver(name)
        elsewhere = driver.neighbour(f"old-{name}")
        for (origin, kind), (epoch, sequence) in heard.items():
            driver.records(elsewhere, Record(origin, epoch, kind, sequence, b"\x80", b""))
        driver.closed(elsewhere)
        driver.take(object)
    Mesh(*drivers.values()).connect("a", "b")
    expected = dict(mine)
    for key, rank in yours.items():
        expected[key] = max(rank, expected.get(key, rank))
    for driver in drivers.values():
        assert book_of(driver, *ORIGINS) == expected


def test_a_line_of_peers_learns_everything_about_everyone() -> None:
    names = "abcde"
    mesh = Mesh(*(Driver(name) for name in names))
    for name, driver in mesh.drivers.items():
        driver.subscribe(f"topic/{name}")
    for here, there in pairwise(names):
        mesh.connect(here, there)
    books = [book_of(driver) for driver in mesh.drivers.values()]
    assert all(book == books[0] for book in books)
    assert {origin for origin, _ in books[0]} == set(names)
    assert mesh.drivers["a"].node.routes.path("e") == tuple(names)


@pytest.mark.parametrize("seed", range(5))
def test_a_mesh_with_circles_comes_to_rest_and_agrees(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"p{number}" for number in range(8)]
    mesh = Mesh(*(Driver(name) for name in names))
    pairs = [(a, b) for a in names for b in names if a < b]
    for here, there in [*pairwise(names), *rng.sample(pairs, 10)]:
        if there not in mesh.drivers[here].node.links.by_peer:
            mesh.connect(here, there)
    for name, driver in mesh.drivers.items():
        driver.subscribe(f"topic/{name}")
    mesh.settle()
    books = [book_of(driver) for driver in mesh.drivers.values()]
    assert all(book == books[0] for book in books)
    assert {driver.node.topology.graph().keys() == set(names) for driver in mesh.drivers.values()} == {True}


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (record("a b", RecordKind.INTERESTS, []), "malformed"),
        (Record("p", 1, 9, 1, b"", b""), "malformed"),
        (Record("p", 1, 0, 1, b"", b""), "malformed"),
        (wants_record("p", "a", age_ms=-1), "malformed"),
        (record("p", RecordKind.SITES, {"x": "y" * 2000}), "oversized"),
        (record("p", RecordKind.SITES, {}, signature=b"?"), "signature"),
        (Record("p", 1, 2, 1, b"\xff", b""), "malformed"),
        (Record("p", 1, 1, 1, b"\x91\x01", b""), "malformed"),
        (Record("p", 1, 3, 1, b"\x90", b""), "malformed"),
        (Record("p", 1, 4, 1, b"\x90", b""), "malformed"),
    ],
)
def test_a_record_that_cannot_be_is_counted_by_its_reason(refused: Record, reason: str) -> None:
    driver = Driver(config=Config(neighbours_target=0, record_body_max_bytes=1000))
    driver.records(driver.neighbour("b"), refused, wants_record("q", "fine"))
    assert driver.drops() == {reason: 1}
    assert driver.node.interests.patterns_of("q") == {"fine"}, "one bad record spoils no other"
    assert driver.node.interests.patterns_of("p") == frozenset()


def test_a_record_past_its_lifetime_is_not_taken() -> None:
    driver = Driver()
    driver.records(driver.neighbour("b"), wants_record("p", "a", age_ms=int(STATIC.record_lifetime_s * 1000)))
    assert driver.node.interests.patterns_of("p") == frozenset()


class OneKey(NullVerifier):
    """Believes who signs with its own name."""

    is_open = False

    def verify(self, origin: str, payload: bytes, signature: bytes) -> bool:
        return bool(payload) and signature == origin.encode()


def test_only_records_whose_signature_holds_are_taken_and_passed_on() -> None:
    driver = Driver(verifier=OneKey())
    link, other = driver.opened(), driver.opened()
    for each, name in ((link, "b"), (other, "c")):
        driver.control(each, Kind.HELLO, Hello(name, 1, "peer", 7, b"", name.encode()))
    driver.take(object)
    driver.records(
        link,
        record("p", RecordKind.INTERESTS, ["a"], signature=b"p"),
        record("q", RecordKind.INTERESTS, ["a"], signature=b"p"),
    )
    assert driver.node.interests.find("a") == ("p",)
    assert passed_on(driver, other) == [("p", 2, 1)]
    assert driver.drops() == {"signature": 1}


def test_the_book_is_bounded_and_those_already_known_stay_current() -> None:
    driver = Driver(config=Config(neighbours_target=0, records_max=10))
    link = driver.neighbour("b")
    for number in range(40):
        driver.records(link, wants_record(f"p{number}", "a"))
    assert len(driver.node.book) <= 10 + len(RecordKind)
    assert driver.drops()["table_full"] >= 30
    driver.records(link, wants_record("p0", "b", sequence=2))
    assert driver.node.interests.patterns_of("p0") == {"b"}


# Our own name


def test_a_peer_that_restarts_with_an_older_clock_outbids_its_former_self() -> None:
    driver = Driver(epoch=50)
    link = driver.neighbour("b")
    driver.take(object)
    driver.records(link, wants_record("me", "old/**", epoch=80, sequence=99))
    assert driver.node.identity.epoch == 81
    assert driver.drops() == {"conflict": 1}
    told = [r for batch in driver.told(link, Kind.RECORDS) for r in batch.records]  # type: ignore[union-attr]
    assert {record.epoch for record in told} == {81}
    assert {record.kind for record in told} >= {RecordKind.LINKS, RecordKind.INTERESTS, RecordKind.ROLES}


@pytest.mark.parametrize("epoch", [2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1])
def test_no_epoch_under_our_name_makes_us_unable_to_speak(epoch: int) -> None:
    driver = Driver()
    link = driver.neighbour("b")
    driver.records(link, wants_record("me", "x", epoch=epoch))
    driver.after(2.0, answering=[link])
    driver.records(link, wants_record("me", "x", epoch=epoch, sequence=2))
    driver.subscribe("still/alive")
    driver.control(link, Kind.INSPECT, Inspect(1))
    driver.after(120.0, answering=[link])
    assert driver.node.interests.patterns_of("me") == {"still/alive"}


def test_a_quarrel_over_our_name_does_not_become_a_storm() -> None:
    driver = Driver()
    link = driver.neighbour("b")
    driver.take(object)
    for epoch in range(1000, 1100):
        driver.records(link, wants_record("me", "x", epoch=epoch))
    assert len(driver.told(link, Kind.RECORDS)) <= 5
    assert driver.node.interests.patterns_of("me") == frozenset()


# Digests


def test_a_digest_is_answered_with_what_is_newer_and_asks_for_what_is_missing() -> None:
    driver = Driver()
    driver.records(
        driver.neighbour("b"), wants_record("p", "a", sequence=5), wants_record("q", "a", sequence=5)
    )
    link = driver.neighbour("c")
    driver.take(object)
    driver.control(link, Kind.DIGEST, Digest([("p", 2, 1, 4), ("q", 2, 1, 6)], False))
    driver.control(link, Kind.DIGEST, Digest([("r", 2, 1, 1)], True))
    wanted = [want.entries for want in driver.told(link, Kind.WANT) if isinstance(want, Want)]
    assert wanted == [[("q", 2)], [("r", 2)]]
    assert passed_on(driver, link) == [("p", 2, 5)]
    driver.take(object)
    driver.control(link, Kind.WANT, Want([("q", 2), ("q", 2), ("x", 1), ("q", 99)]))
    assert passed_on(driver, link) == [("q", 2, 5)]


def test_a_large_book_is_compared_in_parts() -> None:
    driver = Driver()
    link = driver.neighbour("b")
    driver.records(link, *(wants_record(f"p{number}", "a") for number in range(1200)))
    driver.take(object)
    parts = driver.told(driver.neighbour("c"), Kind.DIGEST)
    assert [part.last for part in parts] == [False, False, True]  # type: ignore[union-attr]
    assert sum(len(part.entries) for part in parts) == 1200 + 3  # type: ignore[union-attr]


def test_large_records_travel_in_several_frames_of_bounded_size() -> None:
    driver = Driver()
    link = driver.neighbour("b")
    driver.records(link, *(record(f"p{n}", RecordKind.SITES, {"x": "y" * 100_000}) for n in range(10)))
    driver.take(object)
    other = driver.neighbour("c")
    driver.control(other, Kind.DIGEST, Digest([], True))
    frames = [action.frame for action in driver.take(SendControl) if action.frame[1] == Kind.RECORDS]
    assert len(frames) >= 4
    assert max(map(len, frames)) < 500_000


def test_an_endless_digest_is_remembered_within_bounds_and_forgotten_with_its_link() -> None:
    driver = Driver(config=Config(neighbours_target=0, records_max=50))
    link = driver.neighbour("b")
    for part in range(20):
        driver.control(link, Kind.DIGEST, Digest([(f"p{part}-{n}", 2, 1, 1) for n in range(100)], False))
    named = driver.node._parts.spreading._named
    assert len(named[link]) <= 50
    driver.closed(link)
    assert link not in named


# Light clients


def test_a_light_client_hears_interests_but_no_topology_and_speaks_for_itself_only() -> None:
    driver = Driver()
    peer, client = driver.neighbour("b"), driver.neighbour("leaf", role="client")
    driver.take(object)
    driver.records(peer, links_record("p", "q"), wants_record("p", "a"))
    assert passed_on(driver, client) == [("p", 2, 1)]
    driver.take(object)
    driver.records(client, wants_record("leaf", "mine"), wants_record("q", "forged"))
    assert passed_on(driver, peer) == [("leaf", 2, 1)]
    assert driver.drops() == {"conflict": 1}
    driver.take(object)
    driver.control(client, Kind.DIGEST, Digest([], True))
    assert {kind for _, kind, _ in passed_on(driver, client)} == {int(RecordKind.INTERESTS)}
    driver.take(object)
    driver.control(client, Kind.WANT, Want([("p", 1), ("me", 1), ("p", 2)]))
    assert passed_on(driver, client) == [("p", 2, 1)]


def test_a_light_client_relays_no_records_and_keeps_no_topology() -> None:
    driver = Driver("leaf", Config(role=Role.CLIENT))
    link, other = driver.neighbour("b"), driver.neighbour("c")
    driver.take(object)
    driver.records(link, links_record("p", "q"), wants_record("p", "a"))
    assert driver.take(SendControl) == []
    assert driver.node.book.get("p", RecordKind.LINKS) is None
    assert driver.node.matching.peers("a") == ("p",)
    driver.control(other, Kind.DIGEST, Digest([], True))
    assert passed_on(driver, other) == []


def test_a_batch_travels_on_as_it_came_and_nothing_that_was_put_beside_it() -> None:
    driver = Driver()
    source, other = driver.neighbour("b"), driver.neighbour("c")
    for origin, beside in (("p", []), ("q", ["x" * 1000])):
        driver.take(object)
        batch = [wants_record(origin, "a")]
        driver.frames(source, encode_records([])[:2] + msgspec.msgpack.encode([batch, *beside]))
        frames = [action.frame for action in driver.take(SendControl) if action.link == other]
        assert frames == [encode_records(batch)]
    assert driver.node.interests.patterns_of("q") == {"a"}


def test_of_a_batch_only_the_news_travels_on() -> None:
    driver = Driver()
    source, other = driver.neighbour("b"), driver.neighbour("c")
    known, news = wants_record("p", "a"), wants_record("q", "a")
    driver.records(source, known)
    driver.take(object)
    driver.records(source, known, news)
    assert passed_on(driver, other) == [("q", 2, 1)]


def test_probes_and_records_that_came_already_leave_nothing_to_conclude(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver()
    first, second = driver.neighbour("b"), driver.neighbour("c")
    concluded: list[float] = []
    conclude = Duties.conclude

    def counting(duties: Duties, now: float) -> list[Action]:
        concluded.append(now)
        return conclude(duties, now)

    monkeypatch.setattr(Duties, "conclude", counting)
    driver.records(first, wants_record("p", "a"))
    assert len(concluded) == 1
    driver.records(second, wants_record("p", "a"))
    driver.frames(second, encode_probe(5, 0))
    assert len(concluded) == 1
    driver.records(second, wants_record("p", "b", sequence=2))
    assert len(concluded) == 2
    assert driver.node.interests.patterns_of("p") == {"b"}


def test_what_was_read_once_is_shared_between_peers_and_each_takes_it() -> None:
    first, second = Driver(), Driver("z")
    links = links_record("p", "q")
    for driver in (first, second):
        driver.records(driver.neighbour("b"), links)
    assert first.node.topology.announced("p") == second.node.topology.announced("p") != {}
    assert first.node.topology.announced("p") is second.node.topology.announced("p")
