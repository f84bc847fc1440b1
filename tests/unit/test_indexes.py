"""Both indexes against asking each: many filters and one row, one expression and many sites."""

import random
import time

import pytest
from support_expressions import random_row, random_tree

from anabranch.overlay.attributes import Row
from anabranch.overlay.errors import ExpressionError
from anabranch.overlay.expressions import Expression, parse
from anabranch.overlay.filterindex import FilterIndex
from anabranch.overlay.siteindex import ABSORB_MAX, SiteIndex
from anabranch.overlay.sites import Sites


def random_expression(rng: random.Random) -> Expression:
    while True:
        try:
            return parse(Expression(random_tree(rng)).text)
        except ExpressionError:
            continue


def narrow_expression(rng: random.Random) -> Expression:
    """What filters mostly are: some conditions on single attributes."""
    parts = []
    for name in rng.sample("abcdef", rng.randint(1, 3)):
        low = rng.randint(0, 95)
        parts.append(
            rng.choice(
                (
                    f"{name} = {low}",
                    f"{name} between {low} and {low + 5}",
                    f"{name} >= {low}",
                    f"{name} in ({low}, {low + 1}, 'w{low}')",
                    f"{name} = 'w{low}'",
                    f"{name} like 'w{low % 10}%'",
                    f"{name} intersects {{{low % 7}, 'x'}}",
                    f"{name} superset {{{low % 7}, {low % 5}}}",
                    f"{name}",
                )
            )
        )
    return parse(rng.choice((" and ", " and ", " or ")).join(parts))


def narrow_row(rng: random.Random) -> Row:
    values = (
        lambda: rng.randint(0, 100),
        lambda: rng.random() * 100,
        lambda: f"w{rng.randint(0, 99)}",
        lambda: frozenset(rng.sample(range(7), 3)),
        lambda: rng.random() < 0.5,
    )
    return {name: rng.choice(values)() for name in "abcdef" if rng.random() < 0.9}


@pytest.mark.parametrize("seed", range(6))
def test_the_filter_index_finds_exactly_the_filters_that_hold_while_they_come_and_go(seed: int) -> None:
    rng = random.Random(seed)
    index: FilterIndex[int] = FilterIndex()
    model: dict[int, Expression] = {}
    make, row = (random_expression, random_row) if seed % 2 else (narrow_expression, narrow_row)
    for owner in range(1500):
        if model and rng.random() < 0.4:
            gone = rng.choice(list(model))
            index.remove(model.pop(gone), gone)
        model[owner] = make(rng)
        index.add(model[owner], owner)
        if owner % 30 == 0:
            attributes = row(rng)
            expected = {owner for owner, each in model.items() if each.matches(attributes)}
            assert index.find(attributes) == expected
    assert len(index) == len(set(model.values()))
    assert index.owners() == set(model)
    for owner, expression in model.items():
        index.remove(expression, owner)
        index.remove(expression, owner)
    assert len(index) == 0
    assert not index._root.entries
    assert not index._root.partitions, "nothing is left of what came and went"


def test_filters_that_cannot_hold_are_not_asked() -> None:
    rng = random.Random(3)
    index: FilterIndex[int] = FilterIndex()
    for owner in range(5000):
        low = rng.random() * 100
        index.add(parse(f"a between {low} and {low + 1} and b = {rng.randint(0, 40)}"), owner)
        index.add(parse(f"c between {low} and {low + 9} and d between {low} and {low + 9}"), -owner)
    asked = [
        len(
            index.candidates(
                {"a": rng.random() * 100, "b": 7, "c": rng.random() * 100, "d": rng.random() * 100}
            )
        )
        for _ in range(50)
    ]
    assert sum(asked) / len(asked) < 700, "of 10,000"


def test_filters_about_many_names_are_asked_only_when_their_names_are_there() -> None:
    rng = random.Random(5)
    index: FilterIndex[int] = FilterIndex()
    for owner in range(4000):
        first, second = rng.sample(range(400), 2)
        index.add(parse(f"a{first} > {rng.random()} and a{second} between 0 and {rng.random()}"), owner)
    rows = [{f"a{name}": rng.random() for name in rng.sample(range(400), 20)} for _ in range(30)]
    asked = [len(index.candidates(row)) for row in rows]
    assert sum(asked) / len(asked) < 250, "of 4,000"


@pytest.mark.parametrize("seed", range(4))
def test_the_site_index_finds_exactly_the_sites_that_match_while_they_change(seed: int) -> None:
    rng = random.Random(seed)
    index = SiteIndex()
    model: dict[str, Row] = {}
    make, row = (random_expression, random_row) if seed % 2 else (narrow_expression, narrow_row)
    for step in range(2500):
        name = f"s{rng.randrange(700)}"
        if rng.random() < 0.15:
            index.remove(name)
            model.pop(name, None)
        else:
            model[name] = row(rng)
            index.set(name, model[name])
        if step % 20 == 0:
            expression = make(rng)
            expected = {name for name, each in model.items() if expression.matches(each)}
            assert index.find(expression) == expected, expression.text
    assert index.rows == model
    for name in list(model):
        index.remove(name)
    assert not index._columns
    assert index._all == 0


def test_a_value_that_only_changes_its_kind_is_a_change() -> None:
    index = SiteIndex()
    index.set("a", {"x": 1})
    index.set("a", {"x": True})
    assert index.find(parse("x")) == {"a"}
    assert index.find(parse("x = 1")) == frozenset()


def test_a_site_that_only_changes_the_kind_of_a_value_has_changed() -> None:
    sites = Sites(10)
    assert sites.set("a", {"x": 1})
    assert sites.set("a", {"x": True})
    assert not sites.set("a", {"x": True})
    assert sites.among(("a",), parse("x")) == ("a",)


def test_sites_that_changed_are_found_before_the_columns_know_of_it() -> None:
    index = SiteIndex()
    sites = 3 * ABSORB_MAX
    for number in range(sites):
        index.set(f"s{number}", {"x": number})
    for number in range(sites):
        index.set(f"s{number}", {"x": number, "late": number % 2 == 0})
    index.remove("s0")
    index.remove(f"s{sites - 1}")
    for _ in range(4):
        assert len(index.find(parse("late"))) == sites // 2 - 1
        assert index.find(parse("x < 3 and not late")) == {"s1"}
    assert not index._changed
    assert index._changed_bits == 0
    for number in range(1, sites - 1):
        index.remove(f"s{number}")
    assert not index._columns


def test_attribute_changes_are_absorbed() -> None:
    """1,000 changes a second take a small share of one core."""
    rng = random.Random(1)
    index = SiteIndex()
    for number in range(10_000):
        index.set(f"s{number}", {"load": rng.random(), "region": f"r{number % 20}", "up": True})
    begin = time.process_time()
    for _ in range(1000):
        number = rng.randrange(10_000)
        index.set(f"s{number}", {"load": rng.random(), "region": f"r{number % 20}", "up": True})
    assert time.process_time() - begin < 0.5
