"""Reads a scenario file and checks all of it; each complaint names the file, the key and what would do."""

import difflib
import math
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from anabranch.overlay.errors import UsageError
from anabranch.tools.scenarios import schema
from anabranch.tools.scenarios.checks import check_scenario
from anabranch.tools.scenarios.forms import FORMS
from anabranch.tools.scenarios.schema import Peer, Scenario

_AT = re.compile(r" - at `\$(?P<path>.*)`$")
_STEP = re.compile(r"\.(?P<key>\w+)|\[(?P<index>\d+|\.\.\.)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>.*?)`")
_MISSING = re.compile(r"Object missing required field `(?P<key>.*?)`")


def load_scenario(path: Path) -> Scenario:
    """The scenario in a file; UsageError if it cannot be read or cannot work."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"scenario {str(path)!r}: {error.strerror}; name a TOML file that can be read"
        ) from None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"scenario {str(path)!r}: not UTF-8; save it as UTF-8") from None
    scenario = parse_scenario(text, str(path))
    scenario = msgspec.structs.replace(
        scenario, peers=[_with_files_of(path.parent, peer) for peer in scenario.peers]
    )
    if scenario.trace is None:
        return scenario
    beside = msgspec.structs.replace(scenario.trace, file=str(path.parent / scenario.trace.file))
    return msgspec.structs.replace(scenario, trace=beside)


def _with_files_of(folder: Path, peer: Peer) -> Peer:
    program = [str(folder / text) if (folder / text).is_file() else text for text in peer.program]
    return msgspec.structs.replace(peer, program=program) if program else peer


def parse_scenario(text: str, place: str) -> Scenario:
    """The scenario in a text; `place` is what complaints call it."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{place}: not valid TOML: {error}") from None
    for key, value in _numbers(document, ""):
        if not math.isfinite(value):
            raise UsageError(f"{place}: {key} = {value}: expected a finite number")
    try:
        scenario = msgspec.convert(document, Scenario)
    except msgspec.ValidationError as error:
        raise UsageError(f"{place}: {_explain(str(error), document)}") from None
    if not scenario.name:
        scenario = msgspec.structs.replace(scenario, name=Path(place).stem)
    try:
        check_scenario(scenario)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None
    return scenario


def _numbers(value: object, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for number, inner in enumerate(value, 1):
            yield from _numbers(inner, f"{path}[{number}]")
    elif isinstance(value, float):
        yield path, value


def _explain(complaint: str, document: dict[str, Any]) -> str:
    """What msgspec found, in the words of the file: tables counted from 1, the value, the expected form."""
    at = _AT.search(complaint)
    steps = list(_STEP.finditer(at["path"])) if at else []
    where = _where(steps)
    if unknown := _UNKNOWN.match(complaint):
        place = f"{where}: " if where else ""
        return f"{place}unknown key {unknown['key']!r}: {_suggest(unknown['key'], steps, document)}"
    if missing := _MISSING.match(complaint):
        place = f"{where}: " if where else ""
        return f"{place}{missing['key']!r} is missing: expected {FORMS[missing['key']]}"
    key = next((step["key"] for step in reversed(steps) if step["key"]), "")
    expected = FORMS.get(key, complaint)
    return f"{where} = {_value(steps, document)!r}: expected {expected}"


def _where(steps: list[re.Match[str]]) -> str:
    parts = []
    for step in steps:
        if step["key"]:
            parts.append(f".{step['key']}")
        elif step["index"] == "...":
            parts.append(".NAME")
        else:
            parts.append(f"[{int(step['index']) + 1}]")
    return "".join(parts).removeprefix(".")


def _value(steps: list[re.Match[str]], document: dict[str, Any]) -> object:
    value: Any = document
    for step in steps:
        if step["index"] == "...":
            return "..."
        value = value[step["key"]] if step["key"] else value[int(step["index"])]
    return value


def _suggest(key: str, steps: list[re.Match[str]], document: dict[str, Any]) -> str:
    known = _keys_of_table(steps, document)
    close = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"one of {', '.join(known)}"


def _keys_of_table(steps: list[re.Match[str]], document: dict[str, Any]) -> tuple[str, ...]:
    """The keys that the table at this place takes."""
    if not steps:
        return Scenario.__struct_fields__
    inner = steps[-1]["key"] or steps[0]["key"]
    found = schema.TABLES.get(inner, ())
    if len(found) == 1:
        return found[0].__struct_fields__
    do = _value(steps, document)["do"]  # type: ignore[index] # only tables have keys
    for table in found:
        if table.__struct_config__.tag == do:
            return ("do", *table.__struct_fields__)
    return ()
