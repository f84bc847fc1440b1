"""What is announced for many filters lets pass exactly what they let pass, in fewer."""

import random

import pytest
from test_indexes import narrow_expression, narrow_row

from anabranch.overlay.covering import FILTERS_MAX, announced, is_covered, reduced
from anabranch.overlay.expressions import Expression, parse
from anabranch.overlay.patterns import matches


@pytest.mark.parametrize("seed", range(40))
def test_the_reduced_filters_let_pass_the_same(seed: int) -> None:
    rng = random.Random(seed)
    filters = [narrow_expression(rng) for _ in range(60)]
    for name in "ab":
        for _ in range(15):
            low = rng.randint(0, 60)
            filters.append(parse(f"{name} >= {low} and {name} < {low + rng.randint(1, 30)} and c = 5"))
            filters.append(parse(f"{name} = {rng.randint(0, 9)} and d in ('w1', {rng.randint(0, 9)})"))
    kept = reduced(filters)
    assert len(kept) < len(filters)
    for _ in range(150):
        row = narrow_row(rng) | {"c": rng.choice((5, 6)), rng.choice("ab"): rng.randint(0, 90)}
        assert any(each.matches(row) for each in kept) == any(each.matches(row) for each in filters)
    assert [parse(each.text) for each in kept] == kept


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        (["x > 3", "x > 5", "x between 7 and 9 and y = 1"], ["x > 3"]),
        (["x between 1 and 5", "x between 4 and 9"], ["x >= 1 and x <= 9"]),
        (["x < 5", "x >= 5"], ["x < 5", "x >= 5"]),
        (["x < 5", "x > 5"], ["x < 5", "x > 5"]),
        (["k = 'a' and x > 1", "k = 'b' and x > 1"], ["k in ('a', 'b') and x > 1"]),
        (["t intersects {'a'}", "t intersects {'b'}"], ["t intersects {'a', 'b'}"]),
        (["not (x = 1)", "x = 2"], ["not x = 1", "x = 2"]),
    ],
)
def test_what_covers_and_what_merges(filters: list[str], kept: list[str]) -> None:
    found = {each.text for each in reduced([parse(text) for text in filters])}
    assert found == set(kept)


def test_patterns_without_a_filter_cover_those_with_one() -> None:
    where = parse("x > 1")
    assert announced([("a/*", None), ("a/b", where), ("c", where), ("a/**", where)]) == {
        "a/*",
        ("c", "x > 1"),
        ("a/**", "x > 1"),
    }
    assert announced([("**", None), ("a/**", where)]) == {"**"}
    many: list[tuple[str, Expression | None]] = [
        ("t", parse(f"x = {number} and y != {number}")) for number in range(FILTERS_MAX + 1)
    ]
    assert announced(many) == {"t"}, "too many to tell apart: this peer filters on arrival"
    assert len(announced(many[:-1])) == FILTERS_MAX


def test_covered_patterns_really_are() -> None:
    rng = random.Random(2)
    topics = ["/".join(rng.choices("ab", k=rng.randint(1, 4))) for _ in range(60)]
    patterns = ["/".join(rng.choices(("a", "b", "*", "**"), k=rng.randint(1, 4))) for _ in range(60)]
    for one in patterns:
        for other in patterns:
            if is_covered(one, other):
                assert all(matches(other, topic) for topic in topics if matches(one, topic)), (one, other)
