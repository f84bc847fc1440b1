"""Attributes of publications and sites: which values there are, and which a declared model allows.

Values are normal once they are in here: numbers, texts, booleans, and sets of numbers or texts as frozensets.
"""

import difflib
import math
from collections.abc import Collection, Mapping
from typing import Any

from anabranch.overlay.errors import DropReason, PeerError, UsageError

Scalar = bool | int | float | str
Value = Scalar | frozenset[int | float | str]
Plain = Scalar | list[int | float | str]
"""A value as it travels."""
Row = Mapping[str, Value]
"""The attributes of one publication or one site."""
Model = Mapping[str, str]
"""Declared attributes: the kind of each."""

NUMBER, TEXT, BOOLEAN, SET = KINDS = ("number", "text", "boolean", "set")
KIND_OF: dict[type, str] = {int: NUMBER, float: NUMBER, str: TEXT, bool: BOOLEAN, frozenset: SET}
NAME_MAX_CHARS = 64
ATTRIBUTES_MAX = 256
"""Attributes of one publication or site."""
ELEMENTS_MAX = 1024
"""Elements of one set."""
INTEGER_MAX = 2**63 - 1
INTEGER_MIN = -(2**63)
NO_ATTRIBUTES: Row = {}


def check_name(name: object) -> str:
    """The name of an attribute; UsageError tells what is wrong with it."""
    if not isinstance(name, str) or not name or len(name) > NAME_MAX_CHARS or not name.isprintable():
        raise UsageError(
            f"attribute name {name!r:.100}: must be a text of 1 to {NAME_MAX_CHARS} printable characters"
        )
    return name


def check_model(what: str, model: Mapping[str, str]) -> None:
    """UsageError unless a model names kinds there are."""
    for name, kind in model.items():
        check_name(name)
        if kind not in KINDS:
            raise UsageError(f"{what}: {name} = {kind!r}: one of {', '.join(KINDS)}")


def check_attributes(attributes: Mapping[str, object], model: Model | None = None) -> dict[str, Value]:
    """Attributes in their normal form; UsageError names the one that cannot be, or that no model declares."""
    if not isinstance(attributes, Mapping):
        raise UsageError(f"attributes of type {type(attributes).__name__}: use a map of names to values")
    if len(attributes) > ATTRIBUTES_MAX:
        raise UsageError(f"{len(attributes)} attributes: {ATTRIBUTES_MAX} at most")
    row: dict[str, Value] = {}
    for name, given in attributes.items():
        check_name(name)
        value = normal(given)
        if value is None:
            raise UsageError(f"attribute {name!r}: {_trouble(given)}")
        if model:
            wanted = model.get(name)
            if wanted is None:
                raise UsageError(f"attribute {name!r} is not declared: {suggest(name, model)}")
            if KIND_OF[type(value)] != wanted:
                raise UsageError(f"attribute {name!r} = {given!r:.100}: declared as {wanted}")
        row[name] = value
    return row


def sound_attributes(attributes: Mapping[str, Any]) -> dict[str, Value]:
    """What another peer sent, in its normal form; PeerError if it cannot be."""
    if len(attributes) > ATTRIBUTES_MAX:
        raise PeerError(DropReason.MALFORMED, "too many attributes")
    row: dict[str, Value] = {}
    for name, given in attributes.items():
        value = normal(given)
        if value is None or not isinstance(name, str) or not 0 < len(name) <= NAME_MAX_CHARS:
            raise PeerError(DropReason.MALFORMED, "attribute")
        row[name] = value
    return row


def normal(value: object) -> Value | None:
    """A value as expressions see it; None if there is no such kind."""
    kind = type(value)
    if kind is str or kind is bool:
        return value  # type: ignore[return-value]  # its type was just looked at
    if kind is int or kind is float:
        return _number(value)  # type: ignore[arg-type]
    if isinstance(value, list | tuple | set | frozenset):
        return _set(value)
    if isinstance(value, str):
        return str(value)  # an enumeration's member, say
    return None


def plain(row: Row) -> dict[str, Plain]:
    """A row as it travels: sets as sorted lists."""
    return {name: listed(value) if isinstance(value, frozenset) else value for name, value in row.items()}


def listed(elements: Collection[int | float | str]) -> list[int | float | str]:
    """The elements of a set in an order of their own: numbers first."""
    return sorted(elements, key=lambda each: (isinstance(each, str), each))


def suggest(name: str, known: Collection[str]) -> str:
    """What somebody who wrote this name may have meant."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"one of {', '.join(sorted(known)[:20])}"


def _number(value: int | float) -> int | float | None:
    if type(value) is int:
        return value if INTEGER_MIN <= value <= INTEGER_MAX else None
    return value if math.isfinite(value) else None


def _set(value: Collection[object]) -> frozenset[int | float | str] | None:
    if len(value) > ELEMENTS_MAX:
        return None
    elements = set()
    for each in value:
        kind = type(each)
        if kind is str or ((kind is int or kind is float) and _number(each) is not None):  # type: ignore[arg-type]
            elements.add(each)
        else:
            return None
    return frozenset(elements)  # type: ignore[arg-type]


def _trouble(value: object) -> str:
    if isinstance(value, int | float):
        return f"{value!r:.60} is not a finite number of at most 64 bits"
    if isinstance(value, Collection) and not isinstance(value, Mapping | bytes):
        return f"a set holds at most {ELEMENTS_MAX} numbers and texts, and nothing else"
    return f"a value of type {type(value).__name__}; use a number, a text, a boolean, or a set of such"
