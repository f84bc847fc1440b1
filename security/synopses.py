"""Synopsis types and topic descriptors: how a placeholder is written, made unique, and used on the mesh.

| type | placeholder | what the topic's id does |
| `string` | `air/radar/nyc` | is added as a last level |
| `tags` | `kind=radar,region=north` | is added as a tag `topic` |
| `integer` | `17` | replaces it, as one large number |
| `properties` | JSON object of plain values | is added as a property `topic` |
"""

import json
import re
from collections.abc import Container

import msgspec

from anabranch.security.errors import TrustError

TYPES = ("string", "tags", "integer", "properties")
OPEN_MARK = "topic-"
RESTRICTED_MARK = "!topic-"
"""A level of a topic's name that begins so says that a grant is needed, whoever looks at it."""
PLACEHOLDER_MAX_CHARS = 180
"""Of a string: its id still fits into the name of a topic then."""
LEVELS_MAX = 31
PAIRS_MAX = 32
PROPERTIES_MAX = 32
PATHS_MAX = 32
TEXT_MAX_CHARS = 8192
XML_MAX_BYTES = 64 * 1024
VALUE_MAX_CHARS = 512
DESCRIPTORS_MAX_BYTES = 128 * 1024
RESERVED = frozenset(
    {"id", "uuid", "creator", "institution", "synopsis", "synopsis_type", "created", "expires", "topic"}
)
"""Properties that every topic has, for queries."""
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_TAG_VALUE = re.compile(r"[^,=\x00-\x1f]{1,200}")
_BROKEN = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError)

Value = bool | int | float | str


class Descriptors(msgspec.Struct, frozen=True, array_like=True):
    """What a topic is about, for those who look for it."""

    paths: tuple[str, ...] = ()
    """Texts with `/`, which put the topic into hierarchies."""
    text: str = ""
    """Prose and keywords."""
    properties: dict[str, Value] = {}
    """What SQL asks about."""
    xml: str = ""
    """What XPath asks about."""


def complete(synopsis_type: str, placeholder: str, topic_id: str, restricted: bool) -> str:
    """The synopsis with the topic's id in it; TrustError when the placeholder is not of its type."""
    if synopsis_type == "string":
        _check_string(placeholder)
        return f"{placeholder}/{_level(topic_id, restricted)}"
    if synopsis_type == "tags":
        pairs = _pairs(placeholder)
        _check_unmarked(pairs)
        return ",".join(f"{key}={value}" for key, value in [*pairs.items(), ("topic", topic_id)])
    if synopsis_type == "integer":
        if not re.fullmatch(r"-?[0-9]{1,40}", placeholder):
            raise TrustError("malformed", f"synopsis {placeholder[:80]!r}: not an integer")
        return str(int(topic_id.partition("-")[0], 16))
    if synopsis_type == "properties":
        properties = _properties(placeholder)
        _check_unmarked(properties)
        return json.dumps({**properties, "topic": topic_id}, sort_keys=True)
    raise TrustError("malformed", f"synopsis type {synopsis_type[:80]!r}: one of {', '.join(TYPES)}")


def topic_of(synopsis_type: str, synopsis: str, topic_id: str, restricted: bool) -> str:
    """The topic of the mesh that a completed synopsis stands for."""
    return synopsis if synopsis_type == "string" else f"{synopsis_type}/{_level(topic_id, restricted)}"


def attributes_of(synopsis_type: str, synopsis: str) -> dict[str, Value]:
    """Attributes that its publications carry, for filters: tags and properties."""
    if synopsis_type == "tags":
        return dict(_pairs(synopsis))
    if synopsis_type == "properties":
        return _properties(synopsis)
    return {}


def read_descriptors(encoded: bytes) -> Descriptors:
    """The descriptors; TrustError unless they are within bounds."""
    if len(encoded) > DESCRIPTORS_MAX_BYTES:
        raise TrustError("malformed", f"descriptors of {len(encoded)} B: {DESCRIPTORS_MAX_BYTES} at most")
    try:
        found = _decoder.decode(encoded)
    except _BROKEN:
        raise TrustError("malformed", "descriptors: texts and plain values only") from None
    check_descriptors(found)
    return found


def check_descriptors(found: Descriptors) -> None:
    """TrustError names what is out of bounds."""
    if len(found.paths) > PATHS_MAX or any(len(each) > VALUE_MAX_CHARS for each in found.paths):
        raise TrustError(
            "malformed", f"descriptor paths: {PATHS_MAX} at most, of {VALUE_MAX_CHARS} characters"
        )
    if len(found.text) > TEXT_MAX_CHARS:
        raise TrustError("malformed", f"descriptor text: {TEXT_MAX_CHARS} characters at most")
    if len(found.xml.encode()) > XML_MAX_BYTES:
        raise TrustError("malformed", f"descriptor xml: {XML_MAX_BYTES} B at most")
    if "<!DOCTYPE" in found.xml or "<!ENTITY" in found.xml:
        raise TrustError("malformed", "descriptor xml: no document type, no entities")
    _check_properties(found.properties)


def _level(topic_id: str, restricted: bool) -> str:
    return (RESTRICTED_MARK if restricted else OPEN_MARK) + topic_id


def _check_string(text: str) -> None:
    levels = text.split("/")
    if not 0 < len(text) <= PLACEHOLDER_MAX_CHARS or len(levels) > LEVELS_MAX:
        raise TrustError(
            "malformed",
            f"synopsis {text[:80]!r}: 1 to {PLACEHOLDER_MAX_CHARS} characters, {LEVELS_MAX} levels at most",
        )
    if "" in levels or "*" in text or not text.isprintable():
        raise TrustError("malformed", f"synopsis {text[:80]!r}: levels such as 'air/radar/nyc', without '*'")
    if any(level.startswith((RESTRICTED_MARK, OPEN_MARK)) for level in levels):
        raise TrustError("malformed", f"synopsis {text[:80]!r}: levels that begin with 'topic-' are reserved")


def _check_unmarked(names: Container[str]) -> None:
    if "topic" in names:
        raise TrustError("malformed", "synopsis: the name 'topic' is for the topic's id")


def _pairs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(","):
        key, is_pair, value = part.partition("=")
        if not is_pair or not _KEY.fullmatch(key) or not _TAG_VALUE.fullmatch(value):
            raise TrustError("malformed", f"synopsis {text[:80]!r}: pairs such as 'kind=radar,region=north'")
        if key in found:
            raise TrustError("malformed", f"synopsis {text[:80]!r}: tag {key!r} comes twice")
        found[key] = value
    if len(found) > PAIRS_MAX:
        raise TrustError("malformed", f"synopsis: {PAIRS_MAX} tags at most")
    return found


def _properties(text: str) -> dict[str, Value]:
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise TrustError("malformed", f'synopsis {text[:80]!r}: a JSON object such as {{"kind": "radar"}}')
    _check_properties({key: value for key, value in found.items() if key != "topic"})
    return found


def _refuse_constant(text: str) -> float:
    raise ValueError(text)


def _check_properties(found: dict[str, Value]) -> None:
    if len(found) > PROPERTIES_MAX:
        raise TrustError("malformed", f"{len(found)} properties: {PROPERTIES_MAX} at most")
    lowered = {key.lower() for key in found}
    if len(lowered) != len(found) or lowered & RESERVED or not all(map(_KEY.fullmatch, found)):
        raise TrustError(
            "malformed",
            "properties: names of letters, digits and '_', different whatever the case, none of "
            + ", ".join(sorted(RESERVED)),
        )
    for key, value in found.items():
        is_plain = isinstance(value, bool | int | float | str)
        if not is_plain or (isinstance(value, str) and len(value) > VALUE_MAX_CHARS):
            raise TrustError(
                "malformed",
                f"property {key!r}: a number, a boolean or a text of {VALUE_MAX_CHARS} characters",
            )
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise TrustError("malformed", f"property {key!r}: integers of 64 bits")


_decoder = msgspec.msgpack.Decoder(Descriptors)
