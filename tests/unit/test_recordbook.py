"""The record book: the newest of each origin and kind, whatever the order of arrival."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.errors import DropReason
from anabranch.overlay.headers import Record
from anabranch.overlay.recordbook import RecordBook

LIFETIME_S = 100.0
RECORDS = st.builds(
    Record,
    origin=st.sampled_from("pq"),
    epoch=st.integers(1, 3),
    kind=st.integers(1, 2),
    sequence=st.integers(1, 4),
    body=st.just(b""),
    signature=st.just(b""),
)


def record(origin: str = "p", epoch: int = 1, kind: int = 1, sequence: int = 1, age_ms: int = 0) -> Record:
    return Record(origin, epoch, kind, sequence, b"", b"", age_ms)


def book(records_max: int = 10) -> RecordBook:
    return RecordBook(records_max, LIFETIME_S)


@given(st.lists(RECORDS, max_size=30))
def test_the_newest_stays_in_any_order_of_arrival(records: list[Record]) -> None:
    held = book()
    newest: dict[tuple[str, int], tuple[int, int]] = {}
    for arrived in records:
        key, rank = (arrived.origin, arrived.kind), (arrived.epoch, arrived.sequence)
        expected = None if rank > newest.get(key, (0, 0)) else DropReason.STALE
        assert held.judge(arrived) is expected
        if expected is None:
            held.put(arrived, 0.0)
            newest[key] = rank
    assert {(r.origin, r.kind): (r.epoch, r.sequence) for r in held} == newest
    assert sorted(held.digest(frozenset({1, 2}))) == sorted((*key, *rank) for key, rank in newest.items())
    assert all(kind == 2 for _, kind, _, _ in held.digest(frozenset({2})))


def test_a_restarted_peer_is_not_mistaken_for_its_former_self() -> None:
    held = book()
    held.put(record(epoch=5, sequence=900), 0.0)
    assert held.judge(record(epoch=6, sequence=1)) is None
    held.put(record(epoch=6, sequence=1), 0.0)
    assert held.judge(record(epoch=5, sequence=901)) is DropReason.STALE


def test_a_full_book_takes_newer_records_of_those_it_knows_only() -> None:
    held = book(records_max=2)
    held.put(record("p"), 0.0)
    held.put(record("q"), 0.0)
    assert held.judge(record("r")) is DropReason.TABLE_FULL
    assert held.judge(record("q", sequence=2)) is None
    held.remove("p")
    assert held.judge(record("r")) is None


def test_age_travels_and_ends_a_record() -> None:
    held = book()
    assert held.judge(record(age_ms=100_000)) is DropReason.STALE
    held.put(record(age_ms=60_000), 1000.0)
    aged = held.aged(("p", 1), 1010.0)
    assert aged is not None
    assert aged.age_ms == 70_000
    assert held.get("p", 1) == record(age_ms=60_000)
    assert held.expired(1039.9) == []
    assert held.expired(1040.0) == [("p", 1)]
    held.forget(("p", 1))
    assert len(held) == 0
    assert held.aged(("p", 1), 1040.0) is None


def test_forgetting_an_origin_takes_all_its_kinds_and_nothing_else() -> None:
    held = book()
    for origin in "pq":
        for kind in (1, 2, 3):
            held.put(record(origin, kind=kind), 0.0)
    assert sorted(held.remove("p")) == [1, 2, 3]
    assert held.remove("p") == []
    assert held.origins() == {"q"}
    assert held.get("p", 1) is None
