"""Parts of a harvest: whatever arrives, in whatever order and however often, no site counts twice."""

import enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.asking import expectation, refusal
from anabranch.overlay.coverage import Coverage, Part
from anabranch.overlay.errors import UsageError


@given(st.lists(st.integers(0, 255), max_size=20))
def test_no_site_counts_twice(masks: list[int]) -> None:
    coverage = Coverage()
    for mask in masks:
        coverage.offer(Part(mask, mask.bit_count(), 0))
        coverage.check_invariants()
    assert coverage.answered == coverage.mask.bit_count()


def test_a_larger_part_takes_the_place_of_those_it_holds() -> None:
    coverage = Coverage()
    assert coverage.offer(Part(0b0001, 1, 0))
    assert coverage.offer(Part(0b0010, 1, 0))
    assert coverage.offer(Part(0b0111, 3, 0))
    assert not coverage.offer(Part(0b0011, 2, 0))
    assert not coverage.offer(Part(0b1100, 2, 0)), "half of it is covered, and it cannot be taken apart"
    assert not coverage.offer(Part(0b0111, 3, 0)), "the same once more"
    assert [part.mask for part in coverage.parts] == [0b0111]


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


@pytest.mark.parametrize(
    ("expects", "good", "bad"),
    [
        (None, object, None),
        (int, 3, "3"),
        (int, -1, True),
        (float, 3, "x"),
        (float, 0.5, float("nan")),
        (str, "x", b"x"),
        (bool, True, 1),
        (bytes, b"x", "x"),
        (list, [1], {}),
        (dict, {"a": 1}, []),
        (("yes", "no"), "yes", "maybe"),
        ({1, 2}, 2, True),
        (Level, "low", "middle"),
    ],
)
def test_values_of_another_type_are_refused(expects: object, good: object, bad: object) -> None:
    wanted = expectation(expects)
    assert refusal(wanted, good) == ""
    assert (refusal(wanted, bad) == "") == (expects is None)


@pytest.mark.parametrize("expects", ["int", set, (), 3, [object()], complex])
def test_a_type_that_cannot_be_checked_is_the_callers_mistake(expects: object) -> None:
    with pytest.raises(UsageError, match="expects"):
        expectation(expects)
