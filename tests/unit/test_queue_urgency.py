"""The order of bundles in a link's queue, compared with a simple twin that looks through a list."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.bundles import OutBundle
from anabranch.overlay.headers import BUNDLE_HEADER
from anabranch.overlay.queues import REST_SHARE, LinkQueue

BYTES_MAX = 1000
DEADLINES_US = (0, 1000, 2000, 50_000, 1_000_000)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(DEADLINES_US), st.integers(1, 400)), st.floats(0.0001, 0.5), st.none()
    ),
    max_size=60,
)
"""A bundle with this deadline and size, time that passes, or a bundle that leaves."""


def bundle(number: int, started_at: float, deadline_us: int, size: int = 100, messages: int = 1) -> OutBundle:
    return OutBundle(number, started_at, deadline_us, b"tail", [b"body"], size, messages)


def leave(queue: LinkQueue, now: float) -> int:
    """The number of the bundle that leaves."""
    frames = queue.peek(now)
    assert frames is not None
    queue.advance()
    number = BUNDLE_HEADER.unpack_from(frames[0])[5]
    assert isinstance(number, int)
    return number


def first_of_each(waiting: list[OutBundle]) -> list[OutBundle]:
    heads: dict[int, OutBundle] = {}
    for out in waiting:
        heads.setdefault(out.deadline_us, out)
    return list(heads.values())


def total(bundles: list[OutBundle]) -> int:
    return sum(out.size for out in bundles)


def ends(out: OutBundle) -> float:
    return out.started_at + out.deadline_us / 1e6


@given(STEPS)
def test_the_queue_does_what_its_simple_twin_does(steps: list[tuple[int, int] | float | None]) -> None:
    queue = LinkQueue(BYTES_MAX)
    waiting: list[OutBundle] = []
    now, number, lost, counted, left = 0.0, 0, 0, 0, 0
    for step in steps:
        if isinstance(step, tuple):
            number += 1
            out = bundle(number, now, *step, messages=number % 4)
            kept = [other for other in waiting if other.deadline_us]
            fits = not waiting or total(waiting) + out.size <= BYTES_MAX
            if out.deadline_us and waiting:
                fits = total(kept) + out.size <= BYTES_MAX - BYTES_MAX // REST_SHARE
                while fits and total(waiting) + out.size > BYTES_MAX:
                    newest = [other for other in waiting if not other.deadline_us][-1]
                    waiting.remove(newest)
                    lost += newest.messages or 1
            assert queue.put_bundle(out) == fits
            counted += queue.take_displaced()
            if fits:
                waiting.append(out)
        elif isinstance(step, float):
            now += step
        elif waiting:
            gone = leave(queue, now)
            chosen = next(out for out in waiting if out.sequence == gone)
            heads = first_of_each(waiting)
            assert chosen in heads, "order within a deadline is kept"
            in_time = [out for out in heads if out.deadline_us and ends(out) >= now]
            rest = [out for out in heads if out not in in_time]
            if in_time and chosen not in rest:
                assert ends(chosen) == min(map(ends, in_time))
            waiting.remove(chosen)
            left += 1
        assert queue.bytes == sum(out.size for out in waiting) <= BYTES_MAX
        assert len(queue) == len(waiting)
        assert queue.urgent_bytes == sum(out.size for out in waiting if out.deadline_us)
    assert counted == lost
    assert queue.clear() == (len(waiting), sum(out.messages or 1 for out in waiting))
    assert not queue


def test_the_deadline_that_ends_first_leaves_first_then_late_ones_then_those_without() -> None:
    queue = LinkQueue(10**6)
    for out in (
        bundle(1, 0.0, 0),
        bundle(2, 0.0, 900_000),
        bundle(3, 0.5, 100_000),
        bundle(4, 0.0, 50_000),
        bundle(5, 0.0, 0),
    ):
        assert queue.put_bundle(out)
    assert [leave(queue, 0.55) for _ in range(5)] == [3, 2, 4, 1, 5]


def test_bundles_of_one_deadline_keep_their_order_whatever_their_clocks_say() -> None:
    queue = LinkQueue(10**6)
    for number, started_at in enumerate((3.0, 1.0, 2.0)):
        queue.put_bundle(bundle(number, started_at, 100_000))
    assert [leave(queue, 2.05) for _ in range(3)] == [0, 1, 2]


def test_a_class_whose_first_is_late_waits_for_those_that_can_still_make_it() -> None:
    queue = LinkQueue(10**6)
    queue.put_bundle(bundle(1, 0.0, 10_000))
    queue.put_bundle(bundle(2, 0.99, 10_000))
    queue.put_bundle(bundle(3, 0.9, 500_000))
    assert [leave(queue, 0.995) for _ in range(3)] == [3, 1, 2]


def test_what_is_not_urgent_gets_its_share_of_the_bytes() -> None:
    queue = LinkQueue(10**6, retains=False)
    for number in range(100):
        queue.put_bundle(bundle(number, 0.0, 0))
    sent: list[int] = []
    for number in range(1000, 1800):
        queue.put_bundle(bundle(number, 1.0, 100_000))
        sent.append(leave(queue, 1.0))
    bulk = [number for number in sent if number < 1000]
    assert bulk == list(range(len(sent) // REST_SHARE))
    urgent = [number for number in sent if number >= 1000]
    assert urgent == sorted(urgent)


def test_a_full_queue_lets_the_newest_without_a_deadline_go_for_one_that_has_one() -> None:
    queue = LinkQueue(320)
    for number in (1, 2, 3):
        assert queue.put_bundle(bundle(number, 0.0, 0, messages=number))
    assert queue.put_bundle(bundle(4, 0.0, 1000, size=150))
    assert queue.take_displaced() == 3 + 2
    assert queue.take_displaced() == 0
    assert not queue.put_bundle(bundle(5, 0.0, 0, size=100)), "without a deadline it is refused"
    assert not queue.put_bundle(bundle(6, 0.0, 1000, size=200)), "not even all the room would be enough"
    assert queue.take_displaced() == 0
    assert [leave(queue, 0.0) for _ in range(2)] == [4, 1]


def test_any_deadline_has_its_class_and_there_are_few() -> None:
    queue = LinkQueue(10**9)
    for number in range(5000):
        queue.put_bundle(bundle(number, 0.0, 1 + number * 859_000))
    assert len(queue._urgent) < 260
    assert len(queue) == 5000
