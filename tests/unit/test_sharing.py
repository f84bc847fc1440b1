"""Origins share a link: turns by bytes, room for those that have less, order within each."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.bundles import OutBundle
from anabranch.overlay.queues import LinkQueue
from anabranch.overlay.sharing import TURN_BYTES, SharedQueue

POLITE = [f"polite-{number}" for number in range(9)]


def bundle(origin: str, number: int = 0, size: int = 1000, deadline_us: int = 0) -> OutBundle:
    return OutBundle(number, 0.0, deadline_us, b"tail", [b"body"], size, 0, origin=origin)


def leave(queue: LinkQueue, count: int) -> list[OutBundle]:
    """What leaves next."""
    left = []
    for _ in range(count):
        before = {id(each): each for each in _waiting(queue)}
        assert queue.peek(0.0) is not None
        queue.advance()
        after = {id(each) for each in _waiting(queue)}
        left += [each for key, each in before.items() if key not in after]
    return left


def _waiting(queue: LinkQueue) -> list[OutBundle]:
    return [*queue._bulk, *(each for waiting in queue._urgent.values() for each in waiting)]


@pytest.mark.parametrize("deadline_us", [0, 500_000])
def test_one_flooder_and_nine_polite_each_get_their_share(deadline_us: int) -> None:
    """Threat 21. One first in, first out queue gives the flooder all, and refuses the polite."""
    queue = LinkQueue(1_000_000, retains=False)
    for number in range(2000):
        queue.put_bundle(bundle("flooder", number, deadline_us=deadline_us))
    for number in range(20):
        for name in POLITE:
            assert queue.put_bundle(bundle(name, number, deadline_us=deadline_us)), "room is made"
    assert queue.bytes <= 1_000_000
    left = Counter(each.origin for each in leave(queue, 9 * 20 + 65 + 20))
    assert all(left[name] == 20 for name in POLITE)


@pytest.mark.parametrize("deadline_us", [0, 500_000])
def test_turns_are_counted_in_bytes(deadline_us: int) -> None:
    queue = LinkQueue(100_000_000, retains=False)
    for number in range(400):
        queue.put_bundle(bundle("large", number, 200_000, deadline_us))
    for number in range(40_000):
        queue.put_bundle(bundle("small", number, 1000, deadline_us))
    sent: Counter[str] = Counter()
    while sent.total() < 10_000_000:
        for each in leave_quickly(queue, 100):
            sent[each.origin] += each.size
    assert abs(sent["large"] - sent["small"]) <= 2 * (200_000 + TURN_BYTES)


def leave_quickly(queue: LinkQueue, count: int) -> list[OutBundle]:
    left = []
    for _ in range(count):
        assert queue.peek(0.0) is not None
        assert queue._chosen is not None
        left.append(queue._chosen[0])
        queue.advance()
    return left


def test_who_has_most_waiting_gives_way_its_newest_first() -> None:
    queue = LinkQueue(10_000, retains=False)
    for number in range(10):
        assert queue.put_bundle(bundle("heavy", number))
    assert not queue.put_bundle(bundle("heavy", 10))
    assert queue.put_bundle(bundle("light", 0, 2500))
    assert queue.take_displaced() == 3
    assert queue.bytes == 9500
    assert not queue.put_bundle(bundle("light", 1, 5000)), "it would have more than the other"
    assert [each.sequence for each in leave(queue, 8) if each.origin == "heavy"] == list(range(7))


def test_those_who_have_less_than_their_share_are_not_told_to_pause() -> None:
    queue = LinkQueue(1_000_000, retains=False)
    assert queue.is_crowded_by("anybody"), "nothing waits: the notice is about the link alone"
    queue.put_bundle(bundle("flooder", size=100_000))
    queue.put_bundle(bundle("polite", size=1000))
    assert queue.is_crowded_by("flooder")
    assert not queue.is_crowded_by("polite")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 300_000)), min_size=1, max_size=60))
def test_each_origin_keeps_its_order_and_nothing_is_lost(entries: list[tuple[str, int]]) -> None:
    shared = SharedQueue([])
    for number, (origin, size) in enumerate(entries):
        shared.append(bundle(origin, number, size))
    assert len(shared) == len(list(shared)) == len(entries)
    left = []
    while shared:
        first = shared[0]
        assert shared.popleft() is first
        left.append(first)
    for name in "abc":
        mine = [each.sequence for each in left if each.origin == name]
        assert mine == [number for number, entry in enumerate(entries) if entry[0] == name]


@given(st.data())
def test_bytes_are_counted_whatever_happens(data: st.DataObject) -> None:
    queue = LinkQueue(5000, retains=False)
    for number in range(data.draw(st.integers(1, 40))):
        what = data.draw(st.sampled_from(["put", "put", "put", "send", "take", "clear"]))
        if what == "put":
            deadline_us = data.draw(st.sampled_from([0, 0, 1000, 900_000]))
            queue.put_bundle(
                bundle(
                    data.draw(st.sampled_from("abc")), number, data.draw(st.integers(1, 3000)), deadline_us
                )
            )
        elif what == "send" and queue and queue.peek(0.0) is not None:
            queue.advance()
        elif what == "take":
            queue.take_bundles(lambda each: each.origin == "b")
        elif what == "clear":
            queue.clear()
        waiting = _waiting(queue)
        assert queue.bytes == sum(each.size for each in waiting)
        assert queue.urgent_bytes == sum(each.size for each in waiting if each.deadline_us)
        assert queue._bytes_of == {
            name: size for name in "abc" if (size := sum(e.size for e in waiting if e.origin == name))
        }
        assert queue.bytes <= 5000 or len(waiting) == 1
