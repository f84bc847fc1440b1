"""Moving averages of a link."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.estimators import Estimate, differs

WEIGHTS = st.floats(0.01, 1.0)
TIMES = st.floats(0.0, 10.0)


def test_the_first_sample_counts_whole_and_further_ones_by_their_weight() -> None:
    estimate = Estimate(0.25)
    estimate.add_round_trip(0.2)
    assert (estimate.delay_s, estimate.jitter_s) == (0.1, 0.0)
    estimate.add_round_trip(0.4)
    assert estimate.delay_s == pytest.approx(0.75 * 0.1 + 0.25 * 0.2)
    assert estimate.jitter_s == pytest.approx(0.25 * 0.1)


def test_losses_raise_the_loss_and_echoes_lower_it() -> None:
    estimate = Estimate(0.25)
    for _ in range(3):
        estimate.add_loss()
    assert estimate.loss == pytest.approx(1 - 0.75**3)
    estimate.add_round_trip(0.1)
    assert estimate.loss == pytest.approx((1 - 0.75**3) * 0.75)


def test_availability_follows_usable_intervals() -> None:
    estimate = Estimate(0.5)
    estimate.add_interval(False)
    assert estimate.availability == 0.5
    estimate.add_interval(True)
    assert estimate.availability == 0.75


def test_a_clock_that_went_back_is_no_negative_delay() -> None:
    estimate = Estimate(0.25)
    estimate.add_round_trip(-1.0)
    assert estimate.delay_s == 0.0


@given(WEIGHTS, st.lists(TIMES | st.none() | st.booleans(), max_size=60))
def test_averages_stay_within_their_samples(weight: float, outcomes: list[float | bool | None]) -> None:
    estimate = Estimate(weight)
    samples = []
    for outcome in outcomes:
        if outcome is None:
            estimate.add_loss()
        elif isinstance(outcome, bool):
            estimate.add_interval(outcome)
        else:
            estimate.add_round_trip(outcome)
            samples.append(outcome / 2)
    assert estimate.samples == len(samples)
    assert 0.0 <= estimate.loss <= 1.0
    assert 0.0 <= estimate.availability <= 1.0
    if samples:
        slack = 1e-9
        assert min(samples) - slack <= estimate.delay_s <= max(samples) + slack
        assert 0.0 <= estimate.jitter_s <= max(samples) - min(samples) + slack


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (0.010, 0.0129, False),  # 29 %, but less than 3 ms
        (0.010, 0.0131, True),
        (0.100, 0.105, False),  # 5 ms, but less than 10 %
        (0.100, 0.112, True),
        (0.112, 0.100, True),
        (0.0, 0.0, False),
        (0.0, 0.003, True),
    ],
)
def test_a_change_is_told_when_it_is_large_both_ways(old: float, new: float, expected: bool) -> None:
    assert differs(old, new, 0.10, 0.003) is expected


def follow(delays: list[float], step_samples: int) -> Estimate:
    estimate = Estimate(0.25, step_samples=step_samples)
    for delay in delays:
        estimate.add_round_trip(2 * delay)
        estimate.add_offset(0.0, 2 * delay, is_trusted=True)
    return estimate


def test_some_samples_in_a_row_that_are_far_off_are_a_step() -> None:
    steady = [0.02] * 20
    assert follow([*steady, 0.10, 0.11], 3).delay_s < 0.08
    followed = follow([*steady, 0.10, 0.11, 0.09], 3)
    assert followed.delay_s == pytest.approx(0.10)
    assert followed.jitter_s < 0.01
    assert not followed.may_step
    assert follow([*steady, 0.10, 0.11, 0.09], 0).delay_s < 0.08


def test_a_step_down_is_followed_as_one_up_is() -> None:
    assert follow([0.2] * 20 + [0.05] * 3, 3).delay_s == pytest.approx(0.05)


def test_samples_to_both_sides_are_noise_and_no_step() -> None:
    noisy = [0.02, 0.10] * 20
    assert follow(noisy, 3).delay_s == follow(noisy, 0).delay_s


def test_an_outlier_is_averaged_and_what_follows_it_too() -> None:
    outlier = [*[0.02] * 20, 0.10, 0.02, 0.02, 0.02]
    assert follow(outlier, 3).delay_s == follow(outlier, 0).delay_s
    assert not follow(outlier, 3).may_step


def test_what_lies_within_the_usual_noise_is_no_step() -> None:
    wavering = [*[0.1, 0.12, 0.08, 0.11, 0.09] * 10, 0.13, 0.13, 0.13]
    assert follow(wavering, 3).delay_s == follow(wavering, 0).delay_s


def test_a_step_of_one_direction_is_told_apart_at_once_though_our_clock_moves_meanwhile() -> None:
    estimate = follow([0.05] * 20, 3)
    for clock in (0.0, 0.01, 0.02):
        estimate.add_round_trip(0.2)
        estimate.add_offset(0.05 - clock, 0.2, is_trusted=True)
        estimate.clock_moved(0.01, is_trusted=True)
    assert estimate.delay_s == pytest.approx(0.1)
    assert estimate.there_s == pytest.approx(0.15 - 0.03)
    assert estimate.back_s == pytest.approx(0.05 + 0.03)


@given(st.lists(TIMES, min_size=1, max_size=60), st.integers(1, 5))
def test_steps_stay_within_the_samples_too(samples: list[float], step_samples: int) -> None:
    estimate = follow(samples, step_samples)
    assert min(samples) - 1e-9 <= estimate.delay_s <= max(samples) + 1e-9
