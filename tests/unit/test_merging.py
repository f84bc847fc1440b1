"""Merges of replies: any tree gives the same result, and the result is what a plain loop finds."""

import statistics
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.overlay.codec import decode_value
from anabranch.overlay.errors import UsageError
from anabranch.overlay.merging import ACCURACY, DISTINCT_KEPT, Merge, Merges, merge_all
from anabranch.overlay.replywire import decode_items, encode_items, encode_value

NUMBERS = st.one_of(
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e200, max_value=1e200),
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from(["a", "b", b"a"]))
ALL = ("histogram", "count", "sum", "min", "max", "mean", "top:3", "quantiles:0.5,0.9", "distinct", "collect")


def states_of(merge: Merge, values: list[object]) -> list[object]:
    """Lifted, as they are after they travelled."""
    lifted = [merge.lift(value, f"s{number % 4}", number // 4) for number, value in enumerate(values)]
    return [decode_value(memoryview(encode_value(state))) for state in lifted]


def merge_in_a_tree(merge: Merge, states: list[object], draw: Callable[[int], int]) -> object:
    """Two states at a time, in any order and shape."""
    left = list(states)
    while len(left) > 1:
        a = left.pop(draw(len(left)))
        b = left.pop(draw(len(left)))
        left.append(decode_value(memoryview(encode_value(merge.merge(a, b)))))
    return left[0]


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_tree_gives_the_same_result(name: str, data: st.DataObject) -> None:
    merge = Merges().parse(name)
    kind = SCALARS if name in ("histogram", "distinct", "count", "collect") else NUMBERS
    values = data.draw(st.lists(kind, min_size=1, max_size=12))
    states = states_of(merge, values)

    def draw(below: int) -> int:
        return data.draw(st.integers(0, below - 1))

    one = merge_in_a_tree(merge, states, draw)
    other = merge_all(merge, states)
    assert one == other
    assert repr(merge.finish(one)) == repr(merge.finish(other))


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.integers(-1000, 1000), min_size=1, max_size=30))
def test_results_are_those_of_a_plain_loop(values: list[int]) -> None:
    def result(name: str) -> object:
        merge = Merges().parse(name)
        return merge.finish(merge_all(merge, states_of(merge, list(values))))

    assert result("sum") == sum(values)
    assert result("count") == len(values)
    assert result("min") == min(values)
    assert result("max") == max(values)
    assert result("mean") == pytest.approx(statistics.fmean(values))
    assert result("distinct") == len(set(values))
    assert result("histogram") == {value: values.count(value) for value in values}
    assert [value for value, _ in result("top:3")] == sorted(values, reverse=True)[:3]  # type: ignore[attr-defined]
    assert sorted(value for _, value in result("collect")) == sorted(values)  # type: ignore[attr-defined]


def test_sums_of_floats_are_exact_in_any_order() -> None:
    merge = Merges().parse("sum")
    values: list[object] = [1e100, 1.0, -1e100, 2**-30]
    assert merge.finish(merge_all(merge, states_of(merge, values))) == 1.0 + 2**-30


def test_quantiles_keep_their_accuracy() -> None:
    merge = Merges().parse("quantiles:0.5,0.99")
    values: list[object] = [float(number) for number in range(1, 1001)]
    found = merge.finish(merge_all(merge, states_of(merge, values)))
    assert found[0.5] == pytest.approx(500, rel=2 * ACCURACY)  # type: ignore[index]
    assert found[0.99] == pytest.approx(990, rel=2 * ACCURACY)  # type: ignore[index]


def test_distinct_counts_beyond_what_it_keeps_are_estimates() -> None:
    merge = Merges().parse("distinct")
    count = 20 * DISTINCT_KEPT
    found = merge.finish(merge_all(merge, states_of(merge, list(range(count)))))
    assert found == pytest.approx(count, rel=0.1)


@pytest.mark.parametrize("text", ["", "nonsense", "sum:3", "top:0", "top:x", "quantiles:2", "quantiles:a"])
def test_a_merge_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"merge"):
        Merges().parse(text)


def test_applications_register_their_own() -> None:
    merges = Merges()
    merges.register("longest", lambda a, b: max(a, b, key=len), finish=str.upper)
    merge = merges.parse("longest")
    assert merge.finish(merge_all(merge, states_of(merge, ["a", "abc", "ab"]))) == "ABC"
    assert Merges().get("longest") is None
    with pytest.raises(UsageError, match="another name"):
        merges.register("sum", lambda a, b: a)


def test_empty_bodies_travel() -> None:
    assert decode_items(encode_items([])) == []
