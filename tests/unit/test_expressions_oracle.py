"""The expression language against SQLite, and against noise.

The full runs are `EXPRESSIONS_COUNT=20000` and `EXPRESSION_FUZZ=1000000`; the suite takes
fewer.
"""

import os
import random

import pytest
from support_expressions import NAMES, PATTERNS, WORDS, Oracle, random_row, random_tree

from anabranch.overlay.errors import ExpressionError
from anabranch.overlay.expressions import Expression, parse
from anabranch.overlay.expressions_types import check_types

EXPRESSIONS = int(os.environ.get("EXPRESSIONS_COUNT", "3000"))
FUZZ = int(os.environ.get("EXPRESSION_FUZZ", "15000"))
ROWS = 40
PER_TABLE = 500


@pytest.mark.timeout(600)
def test_random_expressions_hold_where_sqlite_says_they_do() -> None:
    rng = random.Random(5)
    tried = matched = 0
    while tried < EXPRESSIONS:
        rows = [random_row(rng) for _ in range(ROWS)]
        oracle = Oracle(rows)
        for _ in range(PER_TABLE):
            tree = random_tree(rng)
            try:
                check_types("", tree, None)
            except ExpressionError:
                continue  # such as 'in' with a list that has no value of the kind
            text = Expression(tree).text
            expression = parse(text)
            assert expression.text == text, "the canonical text is the same tree"
            found = {number for number, row in enumerate(rows) if expression.matches(row)}
            assert found == oracle.matching(tree), text
            tried += 1
            matched += len(found)
    assert 0.1 < matched / (tried * ROWS) < 0.9, "expressions that say something"


WORDLIST = """and or not between in like escape exists true false subset superset intersects
= != < <= > >= <> + - * / % ( ) { } , 0 1 2.5 1e9 1e400 'a' ' '' . .. # -- ;"""
TOKENS = (
    *NAMES[:5],
    *WORDLIST.split(),
    *('"', '"odd name"', "9" * 19, "9" * 40, "\\", "\0", "\n", "é", "北", "\udc80", "\u0661"),
)


@pytest.mark.timeout(3000)
def test_noise_raises_the_languages_own_error_and_nothing_else() -> None:
    rng = random.Random(6)
    rows = [random_row(rng) for _ in range(3)]
    sound = 0
    columns_out = False
    for number in range(FUZZ):
        text = _noise(rng, number)
        try:
            expression = parse(text)
        except ExpressionError as error:
            columns_out |= not 1 <= error.column <= len(text) + 1
            continue
        sound += 1
        assert parse(expression.text).text == expression.text, text
        for row in rows:
            assert expression.matches(row) in (True, False)
    assert not columns_out, "every error points into the text"
    assert sound > FUZZ / 100, "some of it is well-formed"


def _noise(rng: random.Random, number: int) -> str:
    kind = number % 4
    if kind == 0:
        return " ".join(rng.choice(TOKENS) for _ in range(rng.randint(0, 12)))
    if kind == 1:
        return "".join(
            chr(rng.choice((rng.randrange(128), rng.randrange(0x3000)))) for _ in range(rng.randrange(30))
        )
    words = Expression(random_tree(rng, 3)).text
    if kind == 2:  # a sound one with one word changed
        parts = words.split(" ")
        parts[rng.randrange(len(parts))] = rng.choice((*TOKENS, *WORDS, *PATTERNS))
        return " ".join(parts)
    at = rng.randrange(len(words))
    return words[:at] + rng.choice(("", rng.choice(TOKENS))) + words[at + rng.randrange(4) :]
