"""The window of seen sequence numbers, against a set."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.duplicates import WINDOW_BITS, SequenceWindow

SEQUENCES = st.integers(0, 50) | st.integers(0, 3 * WINDOW_BITS) | st.integers(0, 2**64 - 1)
STEPS = st.lists(SEQUENCES | st.integers(-3, 3).map(lambda step: -1000 - step), max_size=120)
"""Numbers, and (below zero) steps from the last number."""


@given(STEPS)
def test_new_once_and_never_below_the_window(steps: list[int]) -> None:
    window = SequenceWindow()
    seen: set[int] = set()
    last = 0
    for step in steps:
        sequence = step if step >= 0 else max(0, last - 1000 - step)
        expected = sequence not in seen and (not seen or sequence > max(seen) - WINDOW_BITS)
        assert window.is_new(sequence) is expected
        seen.add(sequence)
        last = sequence


def test_the_edges_of_the_window() -> None:
    window = SequenceWindow()
    assert window.is_new(5000)
    assert window.is_new(5000 - WINDOW_BITS + 1)
    assert not window.is_new(5000 - WINDOW_BITS)
    assert not window.is_new(5000)
    assert window.is_new(5000 + WINDOW_BITS)
    assert window.is_new(5001)
    assert not window.is_new(5000)


def test_it_takes_no_more_room_with_every_number() -> None:
    window = SequenceWindow()
    for sequence in range(0, 100_000, 3):
        window.is_new(sequence)
    assert window._seen.bit_length() <= WINDOW_BITS
