"""Order of a publisher's messages: never twice, never backwards, none forgotten, none held for long."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.overlay.errors import DropReason
from anabranch.overlay.ordering import GAPS_MAX, Arrival, Streams, Verdict

HOLD_S = 0.5
HELD_MAX = 4
KEYS = [("p", 1, number) for number in range(3)]
ARRIVALS = st.tuples(
    st.sampled_from(KEYS), st.integers(0, 15), st.integers(1, 4), st.sampled_from([1, 1, 1, 2, 3])
)
STEPS = st.lists(ARRIVALS | st.sampled_from([0.1, 0.3, 1.0]), max_size=50)
"""(stream, first sequence, count, generation), or time that passes."""


class Model:
    """Feeds streams as the peer does and keeps the books: where did every message end?"""

    def __init__(
        self,
        streams_max: int = 10,
        hold_s: float = HOLD_S,
        held_max: int = HELD_MAX,
        repair_s: float = 0.0,
    ) -> None:
        self.streams = Streams(streams_max, held_max, hold_s, repair_s)
        self.now = 0.0
        self.offered = 0
        self.delivered: dict[tuple[str, int, int], list[int]] = {}
        self.refused: Counter[DropReason] = Counter()
        self.lost = 0

    def arrive(
        self, key: tuple[str, int, int], first: int, count: int = 1, generation: int = 1, **more: Any
    ) -> list[int]:
        """A run arrived; what was delivered of its stream by that."""
        self.offered += count
        seen = len(self.delivered.setdefault(key, []))
        if self.streams.advance(key, first, count, generation):
            self.delivered[key] += range(first, first + count)
        else:
            self.settle(self.streams.offer(key, Arrival(first, count, generation, key, **more), self.now))
        return self.delivered[key][seen:]

    def wait(self, seconds: float) -> None:
        """Time passes; the node's timer fires at the moments that the streams asked for."""
        end = self.now + seconds
        while (due := self.streams.next_timeout()) is not None and due <= end:
            self.now = max(self.now, due)
            for verdict in self.streams.expire(self.now):
                self.settle(verdict)
        self.now = end

    def settle(self, verdict: Verdict) -> None:
        for reason, count in verdict.refused:
            assert count > 0
            self.refused[reason] += count
        self.lost += verdict.lost
        for arrival, skip in verdict.ready:
            assert 0 <= skip < arrival.count
            self.delivered[arrival.item] += range(arrival.first + skip, arrival.first + arrival.count)  # type: ignore[index]

    def waiting(self) -> int:
        return sum(arrival.count for stream in self.streams._streams.values() for arrival in stream.held)

    def check(self) -> None:
        for sequences in self.delivered.values():
            assert sequences == sorted(set(sequences)), "twice, or before an earlier one"
        done = sum(map(len, self.delivered.values()))
        assert self.offered == done + self.refused.total() + self.waiting(), "a message vanished uncounted"
        assert self.streams.is_holding == (self.streams.next_timeout() is not None) == (self.waiting() > 0)
        due = self.streams.next_timeout()
        assert due is None or due <= self.now + HOLD_S


@settings(max_examples=400)
@given(STEPS)
def test_every_message_is_delivered_in_order_refused_or_waiting_for_a_bounded_time(
    steps: list[tuple[tuple[str, int, int], int, int, int] | float],
) -> None:
    model = Model()
    for step in steps:
        if isinstance(step, float):
            model.wait(step)
        else:
            model.arrive(*step)
        model.check()
        assert all(len(stream.held) <= HELD_MAX for stream in model.streams._streams.values())
    model.wait(HOLD_S)
    model.check()
    assert model.waiting() == 0
    spans = sum(sequences[-1] - sequences[0] + 1 - len(sequences) for sequences in model.delivered.values())
    assert model.lost == spans


@settings(max_examples=400)
@given(STEPS)
def test_a_full_table_forgets_streams_but_accounts_for_what_they_held(
    steps: list[tuple[tuple[str, int, int], int, int, int] | float],
) -> None:
    model = Model(streams_max=2)
    for step in steps:
        if isinstance(step, float):
            model.wait(step)
        else:
            model.arrive(*step)
        assert len(model.streams) <= 2
        done = sum(map(len, model.delivered.values()))
        assert model.offered == done + model.refused.total() + model.waiting(), "a message vanished uncounted"
        assert model.streams.is_holding == (model.waiting() > 0)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3)), max_size=20), st.integers(0, 9))
def test_what_arrives_in_order_is_delivered_at_once_whatever_its_route(
    runs: list[tuple[int, int]], first: int
) -> None:
    model = Model()
    for count, generation in runs:
        assert model.arrive(KEYS[0], first, count, generation) == list(range(first, first + count))
        first += count
    assert not model.refused
    assert model.lost == 0


@given(st.integers(1, 6), st.lists(st.booleans(), min_size=12, max_size=12))
def test_a_change_of_route_loses_nothing_however_the_two_paths_interleave(
    change_at: int, turns: list[bool]
) -> None:
    model = Model(held_max=20)
    model.arrive(KEYS[0], 0, generation=1)
    paths = {False: list(range(1, change_at)), True: list(range(change_at, 10))}
    for is_new in [*turns, *[False] * 10, *[True] * 10]:
        if paths[is_new]:
            model.arrive(KEYS[0], paths[is_new].pop(0), generation=1 + is_new)
    assert model.delivered[KEYS[0]] == list(range(10))
    assert model.lost == 0
    assert not model.refused


def test_a_gap_on_one_path_is_a_loss_and_holds_nothing_up() -> None:
    model = Model()
    model.arrive(KEYS[0], 0)
    assert model.arrive(KEYS[0], 5) == [5]
    assert model.lost == 4


def test_with_copies_a_gap_waits_for_the_other_path() -> None:
    model = Model()
    key = KEYS[0]
    assert model.arrive(key, 0, may_fill=True) == [0]
    assert model.arrive(key, 2, may_fill=True) == [], "1 was lost on the quick path"
    assert model.arrive(key, 0, may_fill=True) == []
    assert model.arrive(key, 1, may_fill=True) == [1, 2], "and came on the slow one"
    assert (model.lost, model.refused) == (0, {DropReason.DUPLICATE: 1})


def test_what_must_arrive_soon_does_not_wait_as_long() -> None:
    model = Model()
    key = KEYS[0]
    model.arrive(key, 0, may_fill=True)
    model.arrive(key, 2, may_fill=True, patience_s=HOLD_S)
    model.arrive(key, 3, may_fill=True, patience_s=HOLD_S / 10)
    model.wait(HOLD_S / 10 - 0.01)
    assert model.delivered[key] == [0]
    model.wait(0.02)
    assert model.delivered[key] == [0, 2, 3]
    assert model.lost == 1


def test_what_a_relay_may_still_repair_is_waited_for_longer_and_only_after_a_change_of_route() -> None:
    model = Model(repair_s=3 * HOLD_S)
    key = KEYS[0]
    model.arrive(key, 0, generation=1)
    model.arrive(key, 5, generation=2)
    model.wait(2 * HOLD_S)
    assert model.arrive(key, 2, generation=1, may_fill=True, patience_s=0.0) == [], "1 comes yet"
    model.wait(HOLD_S / 2)
    assert model.arrive(key, 1, generation=-3) == [1, 2]
    model.wait(HOLD_S)
    assert model.delivered[key] == [0, 1, 2, 5]
    model.arrive(key, 7, generation=2, may_fill=True)
    model.wait(HOLD_S)
    assert model.delivered[key][-1] == 7


def test_after_a_change_of_route_the_new_path_waits_for_the_old() -> None:
    model = Model()
    model.arrive(KEYS[0], 0, 3, generation=1)
    assert model.arrive(KEYS[0], 5, 2, generation=2) == []
    assert model.arrive(KEYS[0], 3, 1, generation=1) == [3]
    assert model.arrive(KEYS[0], 4, 1, generation=1) == [4, 5, 6]
    assert model.lost == 0
    assert not model.streams.is_holding


def test_the_wait_ends_and_what_comes_later_is_refused_by_its_reason() -> None:
    model = Model()
    model.arrive(KEYS[0], 0, 3, generation=1)
    model.arrive(KEYS[0], 5, 2, generation=2)
    model.wait(HOLD_S)
    assert model.delivered[KEYS[0]] == [0, 1, 2, 5, 6]
    assert model.lost == 2
    assert model.arrive(KEYS[0], 3, 3, generation=1) == []
    assert model.refused == {DropReason.OUT_OF_ORDER: 2, DropReason.DUPLICATE: 1}


def test_a_repeated_run_gives_only_what_is_new_in_it() -> None:
    model = Model()
    model.arrive(KEYS[0], 0, 3)
    assert model.arrive(KEYS[0], 1, 4) == [3, 4]
    assert model.refused == {DropReason.DUPLICATE: 2}
    assert model.arrive(KEYS[0], 0, 5) == []


def test_a_run_that_waits_is_not_delivered_twice() -> None:
    model = Model()
    model.arrive(KEYS[0], 0, 1, generation=1)
    model.arrive(KEYS[0], 2, 1, generation=2)
    model.arrive(KEYS[0], 2, 1, generation=2)
    assert model.arrive(KEYS[0], 1, 1, generation=1) == [1, 2]
    assert model.refused == {DropReason.DUPLICATE: 1}


def test_runs_that_wait_come_out_in_their_order_and_not_in_that_of_arrival() -> None:
    model = Model()
    model.arrive(KEYS[0], 0, 1, generation=1)
    model.arrive(KEYS[0], 7, 1, generation=2)
    model.arrive(KEYS[0], 5, 2, generation=3)
    model.wait(HOLD_S)
    assert model.delivered[KEYS[0]] == [0, 5, 6, 7]
    assert not model.refused


def test_too_many_waiting_runs_are_released_at_once() -> None:
    model = Model()
    model.arrive(KEYS[0], 0, 1, generation=1)
    for sequence in range(2, 2 * HELD_MAX + 2, 2):
        assert model.arrive(KEYS[0], sequence, 1, generation=2) == []
    assert len(model.arrive(KEYS[0], 100, 1, generation=2)) == HELD_MAX + 1


def test_the_least_recently_heard_stream_is_forgotten() -> None:
    model = Model(streams_max=2)
    model.arrive(KEYS[0], 7)
    model.arrive(KEYS[1], 7)
    model.arrive(KEYS[0], 8)
    model.arrive(KEYS[2], 7)
    assert set(model.streams._streams) == {KEYS[0], KEYS[2]}


def test_what_a_forgotten_stream_held_is_counted() -> None:
    model = Model(streams_max=1)
    model.arrive(KEYS[0], 0, generation=1)
    model.arrive(KEYS[0], 5, 3, generation=2)
    model.arrive(KEYS[1], 0)
    assert not model.streams.is_holding
    assert model.refused.total() + len(model.delivered[KEYS[0]]) == 4, "three messages vanished uncounted"


def test_streams_of_another_epoch_or_publisher_are_others() -> None:
    model = Model()
    for key in (("p", 1, 1), ("p", 2, 1), ("p", 1, 2), ("q", 1, 1)):
        assert model.arrive(key, 0, 2) == [0, 1]
    assert not model.refused


def test_remembered_gaps_are_bounded() -> None:
    model = Model()
    for sequence in range(0, 10 * GAPS_MAX, 2):
        model.arrive(KEYS[0], sequence)
    assert len(model.streams._streams[KEYS[0]].gaps) <= GAPS_MAX
    model.arrive(KEYS[0], 10 * GAPS_MAX - 3)
    assert model.refused == {DropReason.OUT_OF_ORDER: 1}


def test_without_a_hold_time_nothing_waits_beyond_the_next_timeout() -> None:
    model = Model(hold_s=0.0)
    model.arrive(KEYS[0], 0, 1, generation=1)
    model.arrive(KEYS[0], 5, 1, generation=2)
    model.wait(0.0)
    assert model.delivered[KEYS[0]] == [0, 5]
