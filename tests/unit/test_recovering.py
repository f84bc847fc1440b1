"""Detours: what they are called, so that receivers expect what takes them to overtake or be overtaken."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.codec import decode_tail, encode_tail
from anabranch.overlay.headers import Tail
from anabranch.overlay.recovering import _apart

GENERATIONS = st.integers(1, 2**32 - 1)
DETOURS = st.tuples(GENERATIONS, st.integers(1, 64), st.integers(0, 2**16 - 1))


@given(DETOURS, DETOURS)
def test_a_detour_has_a_generation_of_its_own(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    assert _apart(*one) < 0 < one[0]
    assert (_apart(*one) == _apart(*other)) == (one == other)


@given(st.integers(-(2**62), 2**62), st.integers(1, 64), st.integers(0, 2**40))
def test_detours_of_detours_of_whatever_somebody_sent_still_fit_the_wire(
    generation: int, passed: int, number: int
) -> None:
    twice = _apart(_apart(generation, passed, number), passed + 1, number)
    tail = Tail("p", 1, twice, ["p"], True, [])
    assert decode_tail(encode_tail(tail)).generation == twice
