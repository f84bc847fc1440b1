"""What a watched subscription is told: gaps, lateness, silence."""

from anabranch.overlay.missing import STREAMS_MAX, Watch
from anabranch.overlay.rates import Rate

KEY = ("t", "a", 1)


def test_a_gap_is_told_once_with_its_extent() -> None:
    watch = Watch("t", 0.0, 0.0)
    assert watch.take(KEY, 5, [0, 0], 0.1, 0.0, 1.0) == [], "whoever comes late misses nothing"
    (gap,) = watch.take(KEY, 10, [0], 0.1, 0.0, 2.0)
    assert (gap.kind, gap.sequence, gap.count) == ("gap", 7, 3)
    assert watch.take(KEY, 11, [0], 0.1, 0.0, 3.0) == []


def test_late_is_later_than_the_deadline() -> None:
    watch = Watch("t", 0.0, 0.0)
    assert watch.take(KEY, 0, [0], 0.05, 0.05, 1.0) == []
    (late,) = watch.take(KEY, 1, [0, 0], 0.06, 0.05, 1.0)
    assert (late.kind, late.sequence, late.count, late.seconds) == ("late", 1, 2, 0.06)


def test_silence_is_told_again_and_again_and_any_message_ends_it() -> None:
    watch = Watch("t/*", 2.0, 10.0)
    assert watch.due() == 12.0
    assert watch.expire(11.9) == []
    assert [each.topic for each in watch.expire(12.0)] == ["t/*"]
    assert watch.due() == 14.0
    watch.take(KEY, 3, [0], 0.1, 0.0, 13.0)
    assert watch.expire(14.0) == []
    assert [(each.topic, each.sequence) for each in watch.expire(15.0)] == [("t", 4)]


def test_publishers_followed_are_bounded() -> None:
    watch = Watch("t", 0.0, 0.0)
    for number in range(STREAMS_MAX + 10):
        watch.take(("t", "a", number), 0, [0], 0.0, 0.0, 0.0)
    assert watch.take(("t", "a", 0), 7, [0], 0.0, 0.0, 0.0) == [], "forgotten"


def test_a_rate_allows_bursts_of_a_tenth_of_a_second_and_no_more() -> None:
    rate = Rate(100.0, 0.0)
    assert sum(rate.take(0.0) == 0.0 for _ in range(50)) == 10
    assert 0 < rate.take(0.0) <= 0.01
    taken = sum(rate.take(step / 1000) == 0.0 for step in range(1, 2001))
    assert 199 <= taken <= 201
    slow = Rate(0.5, 0.0)
    assert [slow.take(0.0) for _ in range(2)] == [0.0, 2.0]
