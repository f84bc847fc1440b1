"""The expression language: what its rules say, what its errors say, and its bounds."""

import pytest

from anabranch.overlay.attributes import Row, check_attributes, sound_attributes
from anabranch.overlay.errors import ExpressionError, PeerError, UsageError
from anabranch.overlay.expressions import Expressions, parse
from anabranch.overlay.expressions_code import like_test

ROW: Row = {
    "region": "north",
    "capacity": 12,
    "load": 4.5,
    "active": True,
    "tags": frozenset(("a", "b", 3)),
    "odd name": "yes",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("region = 'north' and capacity >= 10", True),
        ("REGION = 'north'", False),
        ("capacity BETWEEN 12 AND 13 AND NOT load > 5", True),
        ("capacity / 5 = 2.4", True),
        ("-capacity % 5 = -2", True),
        ("capacity / 0 = 1 or capacity % 0 = 1", False),
        ("load * 2 - 1 = 8", True),
        ("capacity in (11, 12.0)", True),
        ("region like 'n%h' and region not like '_orth_'", True),
        ("active and not (region = 'south')", True),
        ("active = true and active != false", True),
        ("tags superset {'a', 3} and tags intersects {'b', 'z'}", True),
        ("tags subset {'a', 'b'} or tags = {'a'}", False),
        ("tags not subset {'a', 'b'} and {} subset tags", True),
        ("'a' in tags and 4 not in tags", True),
        ("exists(load) and not exists(nothing)", True),
        ("\"odd name\" = 'yes'", True),
        # What is missing, or of another kind, makes a comparison false, the negated ones too.
        ("nothing = 1", False),
        ("nothing != 1", False),
        ("nothing not in (1, 2)", False),
        ("nothing not like 'x'", False),
        ("nothing not between 1 and 2", False),
        ("nothing not subset {'a'}", False),
        ("not (nothing = 1)", True),
        ("not nothing", True),
        ("region > 5 or region < 5", False),
        ("active = active and not (tags < tags)", True),
        ("capacity + nothing > 0", False),
        ("1 = 1", True),
    ],
)
def test_what_the_rules_say(text: str, expected: bool) -> None:
    assert parse(text).matches(ROW) is expected


@pytest.mark.parametrize(
    ("text", "column", "what"),
    [
        ("", 1, "the text ends"),
        ("capacity >", 11, "the text ends"),
        ("capacity > > 3", 12, "found '>'"),
        ("a == 3", 3, "write '='"),
        ("a = 1 && b = 2", 7, "write 'and'"),
        ("1 < a < 5", 7, "do not follow one another"),
        ("a = 'open", 5, "never closed"),
        ("a = 5kw", 5, "neither a number nor a name"),
        ("a = #", 5, "means nothing"),
        ("a > 'x' + 1", 5, "'+' takes numbers; this is a text"),
        ("(a = 1) > 2", 4, "a condition is no value"),
        ("a + 1", 3, "no condition"),
        ("7", 1, "no condition"),
        ("a = 1 or 'x'", 10, "no condition"),
        ("1 = 'x'", 5, "a text is compared with a number"),
        ("a < true", 5, "takes numbers or texts; this is a boolean"),
        ("a subset 'x'", 10, "takes sets"),
        ("true in (1, 2)", 1, "'in' takes a number or a text"),
        ("a in ()", 6, "empty list"),
        ("a in (b)", 7, "expected a number or a text"),
        ("a like b", 8, "expected a pattern in quotes"),
        ("a like 'x!' escape '!'", 20, "stands before another one"),
        ("a not = 3", 7, "expected 'between'"),
        ("a = 99999999999999999999", 5, "more than 64 bits"),
        ("a = 1e999", 5, "too large"),
        ("exists(1)", 8, "the name of an attribute"),
        ('"" = 1', 1, "1 to 64"),
        ("(" * 200 + "a" + ")" * 200, 49, "nested deeper"),
        ("a = " + "1+" * 200 + "1", 98, "a chain of more than"),
        (" or ".join(["a"] * 1500), 5121, "more than 1024 parts"),
        ("a" * 9000, 8193, "longer than 8192"),
    ],
)
def test_errors_point_at_the_column_and_name_the_fix(text: str, column: int, what: str) -> None:
    with pytest.raises(ExpressionError, match=f"column {column}: ") as caught:
        parse(text)
    assert what in str(caught.value)
    assert caught.value.column == column
    assert isinstance(caught.value, UsageError)


def test_deep_trees_are_refused_before_anything_goes_down_them() -> None:
    text = "1"
    for _ in range(20):
        text = f"({text}" + "+1" * 12 + ")"
    with pytest.raises(ExpressionError, match="deep"):
        parse(f"a > {text}")


MODEL = {"region": "text", "capacity": "number", "tags": "set", "active": "boolean"}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("regoin = 'x'", "column 1: attribute 'regoin' is not declared: did you mean 'region'?"),
        ("active and capacity > 'x'", "column 23: a text is compared with a number"),
        ("region + 1 > 2", "column 1: '+' takes numbers; this is a text"),
        ("region", "this is a text"),
        ("tags > 3", "this is a set"),
        ("exists(nothing)", "not declared"),
        ("region in tags and capacity in region", "'in' takes a list or a set"),
    ],
)
def test_a_model_makes_wrong_names_and_kinds_errors(text: str, what: str) -> None:
    assert parse(text.replace("regoin", "region")) if what.startswith("column 1: attr") else parse(text)
    with pytest.raises(ExpressionError) as caught:
        parse(text, MODEL)
    assert what in str(caught.value)


def test_attributes_come_to_one_form_and_what_cannot_is_named() -> None:
    assert check_attributes({"n": 1, "t": "x", "s": ["b", 1], "e": set(), "b": False}) == {
        "n": 1,
        "t": "x",
        "s": frozenset(("b", 1)),
        "e": frozenset(),
        "b": False,
    }
    for bad, what in (
        ({"x": None}, "type NoneType"),
        ({"x": float("nan")}, "finite"),
        ({"x": 2**63}, "64 bits"),
        ({"x": [True]}, "a set holds"),
        ({"x": {"y": 1}}, "type dict"),
        ({"x": b"y"}, "type bytes"),
        ({"": 1}, "attribute name"),
        ({5: 1}, "attribute name"),
        ({f"x{n}": 1 for n in range(300)}, "256 at most"),
        ([], "use a map"),
    ):
        with pytest.raises(UsageError, match=what):
            check_attributes(bad)  # type: ignore[arg-type]
        if isinstance(bad, dict):
            with pytest.raises(PeerError):
                sound_attributes(bad)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="declared as number"):
        check_attributes({"capacity": "12"}, MODEL)
    with pytest.raises(UsageError, match=r"did you mean 'capacity'"):
        check_attributes({"capacty": 12}, MODEL)


def test_what_was_parsed_is_remembered_and_so_are_errors_within_bounds() -> None:
    known = Expressions(cache_max=2)
    assert known.get("a = 1") is known.get("a = 1")
    for text in ("b = 1", "c =", "c =", "d = 1"):
        if text == "c =":
            with pytest.raises(ExpressionError, match="column 4"):
                known.get(text)
        else:
            known.get(text)
    assert len(known._known) == 2


def test_a_pattern_made_to_be_slow_is_not() -> None:
    fits = like_test("%a" * 30 + "_%b")
    assert not fits("a" * 20_000)


def test_numbers_that_leave_their_bounds() -> None:
    big = 2**62
    assert parse("x + x > 9223372036854775806").matches({"x": big})
    assert not parse("x * x * x * x * x * x > 0").matches({"x": 1e60})
    assert parse("-x > 0").matches({"x": -(2**63)})
