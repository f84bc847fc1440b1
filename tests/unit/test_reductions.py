"""The paper's reduction: what a filter over a message says of it is what its selection says of the site."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.attributes import Value, check_attributes
from anabranch.overlay.errors import UsageError
from anabranch.overlay.expressions import Expression, parse
from anabranch.overlay.expressions_code import compile_test
from anabranch.overlay.expressions_tree import Node
from anabranch.overlay.reductions import Specified, filter_count, filters
from anabranch.overlay.reductions_generic import Generic
from tests.unit.support_expressions import random_row, random_tree

ELEMENTS = ("a", "b", "c")
MODEL = {"load": "number", "rack": "number", "region": "text", "up": "boolean", "tags": "set"}
GENERIC = Generic(MODEL, {"tags": ELEMENTS})


def holds_as_filters(tree: Node, row: dict[str, Value]) -> bool:
    return any(all(compile_test(term)(row) for term in terms) for terms in filters(tree))


@given(st.integers(0, 2**63))
def test_a_specified_filter_says_of_the_message_what_its_selection_says_of_the_site(seed: int) -> None:
    rng = random.Random(seed)
    expression = Expression(random_tree(rng, 3))
    form = Specified("form", expression)
    message = dict(form.message(expression))
    for _ in range(6):
        site = random_row(rng)
        reduced = form.filter(site)
        wanted = expression.matches(site)
        assert reduced.matches(message) is wanted, (expression, site, reduced, message)
        assert parse(reduced.text).matches(message) is wanted, "as it travels"
        if filter_count(reduced.tree) <= 64:
            assert holds_as_filters(reduced.tree, message) is wanted


def test_one_form_serves_all_expressions_that_differ_in_their_constants() -> None:
    form = Specified("shed", parse("load > 0.5 and region in ('north', 'south') and 'a' in tags"))
    assert form.text == """load > "shed:0" and region in "shed:1" and "shed:2" subset tags"""
    other = parse("load > 0.9 and region in ('west') and 'b' in tags")
    assert form.message(other) == {
        "shed:0": 0.9,
        "shed:1": frozenset(("west",)),
        "shed:2": frozenset(("b",)),
    }
    for load, region, tags in (
        (0.95, "west", ["b"]),
        (0.9, "west", ["b"]),
        (1.0, "north", ["b"]),
        (1.0, "west", []),
    ):
        site = check_attributes({"load": load, "region": region, "tags": tags})
        assert form.filter(site).matches(form.message(other)) is other.matches(site)
    for strange in ("load > 'x' and region in ('west') and 'b' in tags", "load < 0.9", "load > 0.5 or up"):
        with pytest.raises(UsageError, match="not of the form 'shed'"):
            form.message(parse(strange))
    with pytest.raises(UsageError, match="belongs to its messages"):
        Specified("shed", parse('"shed:0" > 1'))


def interval(rng: random.Random, name: str, values: tuple[object, ...]) -> list[str]:
    """What G^g can say of one attribute: a closed range, an open one, both, or nothing."""
    low, high, below, above = (repr(rng.choice(values)) for _ in range(4))
    closed = (f"{name} between {low} and {high}", f"{name} >= {low} and {name} <= {high}", f"{name} = {low}")
    opened = (
        f"({name} < {below} or {name} > {above})",
        f"{name} < {below}",
        f"{name} > {above}",
        f"{name} != {below}",
        f"{name} not between {below} and {above}",
    )
    return [rng.choice(each) for each in (closed, opened) if rng.random() < 0.4]


def random_selection(rng: random.Random) -> str:
    parts = interval(rng, "load", (-1, 0, 0.25, 0.5, 2, 9)) + interval(rng, "rack", (1, 2, 3))
    parts += interval(rng, "region", ("", "east", "north", "west"))
    if rng.random() < 0.3:
        parts.append(rng.choice(("up", "up = false", "up != true", "up = true and up != false")))
    for no in ("", "not "):
        if rng.random() < 0.4:
            elements = ", ".join(map(repr, rng.sample(ELEMENTS, rng.randint(0, 3))))
            parts.append(f"tags {no}{rng.choice(('subset', 'superset'))} {{{elements}}}")
    rng.shuffle(parts)
    return " and ".join(parts) or "true"


@given(st.integers(0, 2**63))
def test_the_generic_filter_says_of_the_message_what_its_selection_says_of_the_site(seed: int) -> None:
    rng = random.Random(seed)
    selection = random_selection(rng)
    expression = parse(selection, MODEL) if selection != "true" else Expression(GENERIC.tree([]))
    message = dict(GENERIC.message(expression))
    for _ in range(6):
        whole = {
            "load": rng.choice((-1, 0, 0.25, 0.3, 0.5, 2, 10)),
            "rack": rng.choice((1, 2, 3)),
            "region": rng.choice(("", "east", "north", "nowhere", "west")),
            "up": rng.random() < 0.5,
            "tags": rng.sample(ELEMENTS, rng.randint(0, 3)),
        }
        site = {name: value for name, value in whole.items() if rng.random() < 0.9}
        reduced = GENERIC.filter(site)
        assert reduced.matches(message) is expression.matches(check_attributes(site)), (selection, site)
        assert parse(reduced.text).matches(message) is reduced.matches(message), "as it travels"


def test_generic_filters_are_as_many_as_the_paper_says() -> None:
    names = [f"v{number}" for number in range(12)]
    generic = Generic(dict.fromkeys(names, "number"))
    for count in range(1, 13):
        assert filter_count(generic.tree(names[:count])) == 2**count
        assert filter_count(generic.tree(names[:count], has_open=False)) == 1
    tree = generic.tree(names[:5])
    made = list(filters(tree))
    assert len(made) == 2**5
    assert {len(terms) for terms in made} == {3 * 5}
    whole = generic.filter(dict.fromkeys(names, 0.5))
    assert filter_count(whole.tree) == 2**12
    members = Generic({"tags": "set"}, {"tags": [f"t{number}" for number in range(8)]})
    assert filter_count(members.tree()) == 2 * 8 + 1


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("load < 1 and load > 0", "second open range"),
        ("load + rack > 1", "no place in the generic filter"),
        ("load > 1 or up", "no place in the generic filter"),
        ("height > 1", "not declared"),
        ("region > 1", "compared with"),
        ("tags subset {'z'}", "no declared member"),
    ],
)
def test_what_the_generic_filter_cannot_say_is_told(text: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        GENERIC.message(parse(text))


def test_sites_outside_the_model_are_told() -> None:
    with pytest.raises(UsageError, match="no declared member"):
        GENERIC.filter({"tags": ["z"]})
    with pytest.raises(UsageError, match="declared as number"):
        GENERIC.filter({"load": "much"})
    with pytest.raises(UsageError, match="U\\+10FFFF"):
        GENERIC.filter({"region": "\U0010ffff"})
