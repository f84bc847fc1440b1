"""The clock of the mesh: how it moves, and what estimates make of offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.clocks import ADJUST_INTERVAL_S, MeshClock
from anabranch.overlay.estimators import Estimate

SECONDS = st.floats(0, 5)


def test_it_runs_with_the_time_it_is_given() -> None:
    clock = MeshClock(5_000_000)
    assert clock.read(70.0) == 5.0
    assert clock.read(71.5) == 6.5


def test_it_moves_towards_the_middle_of_what_neighbours_show_and_not_all_the_time() -> None:
    clock = MeshClock(0)
    before = clock.read(1.0)
    step = clock.adjust([0.2, 0.3, 900.0], 1.0)
    assert step == pytest.approx(0.15)
    assert clock.read(1.0) == pytest.approx(before + step)
    assert clock.adjust([0.2, 0.3, 900.0], 1.0 + ADJUST_INTERVAL_S / 2) == 0.0
    assert clock.adjust([], 2.0) == 0.0


def test_it_settles_when_it_is_close_for_some_time_and_moves_slowly_from_then_on() -> None:
    clock = MeshClock(0)
    for now in range(4):
        assert not clock.is_settled
        clock.adjust([0.001], float(now))
    assert clock.is_settled
    assert clock.adjust([0.01], 9.0) == pytest.approx(0.001)
    assert clock.is_settled
    clock.adjust([4.0], 10.0)
    assert not clock.is_settled


@given(there=SECONDS, back=SECONDS)
def test_the_two_directions_of_a_link_are_told_apart_where_clocks_agree(there: float, back: float) -> None:
    estimate = Estimate(0.25)
    for _ in range(60):
        estimate.add_round_trip(there + back)
        estimate.add_offset((there - back) / 2, there + back, is_trusted=True)
    assert (estimate.there_s, estimate.back_s) == pytest.approx((there, back), abs=1e-4)


@given(st.lists(st.tuples(SECONDS, st.floats(-1e6, 1e6), st.floats(-1e3, 1e3)), min_size=1))
def test_no_direction_ever_takes_less_than_nothing_or_more_than_both(
    samples: list[tuple[float, float, float]],
) -> None:
    estimate = Estimate(0.25)
    for round_trip, offset, step in samples:
        estimate.add_round_trip(round_trip)
        estimate.add_offset(offset, round_trip, is_trusted=True)
        estimate.clock_moved(step, is_trusted=True)
        both = 2 * max(each[0] for each in samples)
        assert 0 <= estimate.there_s <= both
        assert 0 <= estimate.back_s <= both


def test_an_offset_that_no_link_can_have_leaves_the_directions_alike() -> None:
    estimate = Estimate(0.25)
    for _ in range(5):
        estimate.add_round_trip(0.1)
        estimate.add_offset(3600.0, 0.1, is_trusted=True)
        estimate.clock_moved(100.0, is_trusted=True)
    assert estimate.there_s == estimate.back_s == pytest.approx(0.05)
