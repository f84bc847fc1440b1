"""What a request asks for: how replies come back, and of which type they shall be. Checks, no state."""

import enum
from collections.abc import Callable, Iterable
from math import isfinite
from typing import NamedTuple

from anabranch.overlay.errors import UsageError

WITHIN_MAX_S = 4000.0
UNREACHED = "no path there"
"""Why a site is missing, or has to be asked over another peer."""
CHOICES_MAX = 256
"""Values that a request may name as the only ones allowed."""


class Protocol(enum.StrEnum):
    """How replies travel to the publisher."""

    CONVERGE = "converge"
    """Back along the forwarding tree; each peer on it knows who is still to come."""
    MERGE = "merge"
    """The same, and each peer merges what comes and sends it on once."""
    STATELESS = "stateless"
    """Back along the path that the message names; no peer on it keeps anything."""
    PUBLISH = "publish"
    """As publications to a topic of the publisher."""
    DIRECT = "direct"
    """Over a connection that each replier opens to the publisher."""
    DATAGRAM = "datagram"
    """As UDP datagrams to the publisher: what is lost is lost."""

    @property
    def follows_tree(self) -> bool:
        """Whether peers on the way keep state."""
        return self in (Protocol.CONVERGE, Protocol.MERGE)

    @property
    def leaves_mesh(self) -> bool:
        """Whether replies go past the mesh, unencrypted and unproven."""
        return self in (Protocol.DIRECT, Protocol.DATAGRAM)

    @property
    def is_repaired(self) -> bool:
        """Whether the publisher asks again when the way back broke; the others wait for a silence (tau)."""
        return self in (Protocol.CONVERGE, Protocol.MERGE, Protocol.STATELESS)


class RequestKey(NamedTuple):
    """One request, in the whole mesh."""

    origin: str
    epoch: int
    number: int


Expectation = list[object]
"""A type as it travels: empty (anything), a name, or "choice" and the values."""

_BY_TYPE: dict[object, str] = {
    int: "int",
    float: "float",
    str: "str",
    bool: "bool",
    bytes: "bytes",
    list: "list",
    dict: "dict",
}


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**64


def _is_number(value: object) -> bool:
    return _is_int(value) or (isinstance(value, float) and isfinite(value))


_CHECKS: dict[str, Callable[[object], bool]] = {
    "int": _is_int,
    "float": _is_number,
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "bytes": lambda value: isinstance(value, bytes),
    "list": lambda value: isinstance(value, list | tuple),
    "dict": lambda value: isinstance(value, dict),
    "scalar": lambda value: value is None or isinstance(value, bool | int | float | str | bytes),
}


def expectation(expects: object) -> Expectation:
    """A caller's `expects` in the form that travels; UsageError for what cannot be checked."""
    if expects is None:
        return []
    if isinstance(expects, type) and issubclass(expects, enum.Enum):
        expects = [member.value for member in expects]
    if isinstance(expects, Iterable) and not isinstance(expects, str | bytes | type):
        choices = sorted(expects, key=repr) if isinstance(expects, set | frozenset) else list(expects)
        if not 0 < len(choices) <= CHOICES_MAX or not all(_CHECKS["scalar"](each) for each in choices):
            raise UsageError(f"expects = {expects!r}: name 1 to {CHOICES_MAX} numbers, texts or bytes")
        return ["choice", *choices]
    name = _BY_TYPE.get(expects) if isinstance(expects, type) else None
    if name is None:
        raise UsageError(
            f"expects = {expects!r}: one of int, float, str, bool, bytes, list, dict, "
            "or a collection of the values that are allowed"
        )
    return [name]


def is_expectation(wanted: Expectation) -> bool:
    """Whether what came from the wire can be checked."""
    return not wanted or wanted[0] == "choice" or (len(wanted) == 1 and str(wanted[0]) in _CHECKS)


def refusal(wanted: Expectation, value: object) -> str:
    """Why a reply's value is not of the type asked for; empty when it is."""
    if not wanted:
        return ""
    if wanted[0] == "choice":
        if any(type(value) is type(choice) and value == choice for choice in wanted[1:]):
            return ""
        return f"one of {', '.join(map(repr, wanted[1:]))} was asked for"
    check = _CHECKS.get(str(wanted[0]))
    if check is None or check(value):
        return ""
    return f"a value of type {wanted[0]} was asked for"
