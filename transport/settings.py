"""What a peer process is told: a TOML file, then `ANABRANCH_*` variables, then options; the later ones win.

Everything is checked here, once, and each complaint names the key, where it stands and what would do.
"""

import difflib
import enum
import math
import tomllib
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from anabranch.overlay.addresses import is_dialable, parse_address
from anabranch.overlay.config import Config
from anabranch.overlay.errors import UsageError
from anabranch.overlay.identifiers import PeerId
from anabranch.transport.beacons import parse_endpoint, parse_group

_PREFIX = "ANABRANCH_"
_FILE_VARIABLE = "ANABRANCH_FILE"
_CONFIG_PREFIX = "ANABRANCH_CONFIG_"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a peer process needs, checked; `load_settings` gathers it."""

    name: str | None = None
    """None: the program makes one up."""
    listen: list[str] = msgspec.field(default_factory=list)
    join: list[str] = msgspec.field(default_factory=list)
    """Addresses of peers to dial at the start."""
    advertise: list[str] = msgspec.field(default_factory=list)
    """What others shall dial, where that is not what we listen on (NAT, containers)."""
    beacon: str | None = None
    """Multicast group for discovery, `udp://239.x.y.z:port`; "" is off, None leaves it to the program."""
    beacon_unicast: list[str] = msgspec.field(default_factory=list)
    """`host:port` of peers that get beacons too, for networks without multicast."""
    log_dir: str | None = None
    """Where records are written; None: nowhere."""
    profile: str | None = None
    """What was learned about links: the file that `anabranch analyze` writes; None: nothing."""
    store_dir: str | None = None
    """Where the store for persistent publishers and durable subscriptions is; None: there is none."""
    identity: str | None = None
    """Directory or file of the peer's certificate and key, for a secured mesh."""
    open: bool = False
    """An open mesh: no certificates, no encryption; whoever reaches a peer may join."""
    preset: Literal["local", "lan", "wan", "harmony"] | None = None
    """What `config` starts from."""
    config: Config = msgspec.field(default_factory=Config)
    """With the preset and all single settings applied."""
    log_format: Literal["console", "json"] = "console"
    """Of the program's own log."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    def __post_init__(self) -> None:
        for key in self.__struct_fields__:
            _check(key, getattr(self, key))


class _Given(msgspec.Struct, frozen=True):
    """One value that somebody set."""

    value: object
    place: str
    """For the complaint: a file, a variable, an option."""
    is_text: bool = False
    """Whether numbers and lists are still to be read from a text."""


_SETTINGS_TYPES: dict[str, Any] = get_type_hints(Settings)
_CONFIG_TYPES: dict[str, Any] = get_type_hints(Config)
_Givens = dict[str, _Given]


def load_settings(
    *, file: Path | None, environ: Mapping[str, str], options: Mapping[str, object]
) -> Settings:
    """Gather the settings of a process; UsageError for whatever is unknown, malformed or contradictory.

    `file`: None takes the one that ANABRANCH_FILE names, if any. `options`: a None is an option not given;
    `options["set"]` is a list of "key=value" for single fields of the Config.
    """
    given: _Givens = {}
    config: _Givens = {}
    if file is None and environ.get(_FILE_VARIABLE):
        file = Path(environ[_FILE_VARIABLE])
    if file is not None:
        _gather_table(_read_file(file), str(file), given, config)
    from_environment: _Givens = {}
    _gather_environment(environ, from_environment, config)
    _overrule(given, from_environment)
    from_options: _Givens = {}
    _gather_options(options, from_options, config)
    _overrule(given, from_options)
    values = {key: _settled(key, each, _SETTINGS_TYPES[key]) for key, each in given.items()}
    changes = {key: _settled(key, each, _CONFIG_TYPES[key]) for key, each in config.items()}
    preset = getattr(Config, str(values.get("preset") or "wan"))
    try:
        return Settings(**values, config=preset(**changes))
    except UsageError as error:
        culprit = config.get(str(error).partition(" = ")[0])
        raise UsageError(f"{culprit.place}: {error}" if culprit else str(error)) from None


def _overrule(given: _Givens, later: _Givens) -> None:
    """Later values win; one that chooses between identity and open also ends the other."""
    for key, other in (("identity", "open"), ("open", "identity")):
        if key in later and other not in later:
            given.pop(other, None)
    given |= later


def _read_file(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"settings file {str(path)!r}: {error.strerror}; name one that can be read"
        ) from None
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"settings file {str(path)!r}, line {line}: not UTF-8; save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"settings file {str(path)!r} is not valid TOML: {_with_line(error, data)}"
        ) from None


def _with_line(error: tomllib.TOMLDecodeError, data: bytes) -> str:
    """What is wrong, with a line number even at the end of the file."""
    last = data.rstrip().count(b"\n") + 1
    return str(error).replace("(at end of document)", f"(at line {last}, the end of the file)")


def _gather_table(table: Mapping[str, Any], path: str, given: _Givens, config: _Givens) -> None:
    for key, value in table.items():
        if key == "config":
            if not isinstance(value, Mapping):
                raise UsageError(f"{path}: config = {value!r}: expected a table, [config]")
            _gather_config(value, f"{path}, [config]", config)
        elif key in _SETTINGS_TYPES:
            given[key] = _Given(value, path)
        elif key in _CONFIG_TYPES:
            raise UsageError(f"{path}: {key!r} stands at the top level: put it below a line [config]")
        else:
            raise UsageError(f"{path}: unknown key {key!r}: {_suggest(key, _SETTINGS_TYPES)}")


def _gather_config(table: Mapping[str, Any], place: str, config: _Givens) -> None:
    for key, value in table.items():
        if key not in _CONFIG_TYPES and key in _SETTINGS_TYPES:
            raise UsageError(f"{place}: {key!r} is no part of [config]: put it above that line")
        if key not in _CONFIG_TYPES:
            raise UsageError(f"{place}: unknown key {key!r}: {_suggest(key, _CONFIG_TYPES)}")
        config[key] = _Given(value, place)


def _gather_environment(environ: Mapping[str, str], given: _Givens, config: _Givens) -> None:
    settings = {_PREFIX + key.upper(): key for key in _SETTINGS_TYPES if key != "config"}
    fields = {_CONFIG_PREFIX + key.upper(): key for key in _CONFIG_TYPES}
    for variable in sorted(environ):
        text = environ[variable]
        if variable in settings:
            given[settings[variable]] = _Given(text, variable, is_text=True)
        elif variable in fields:
            config[fields[variable]] = _Given(text, variable, is_text=True)
        elif variable.startswith(_PREFIX) and variable != _FILE_VARIABLE:
            hint = _suggest_variable(variable, [*settings, _FILE_VARIABLE, *fields])
            raise UsageError(f"unknown variable {variable}: {hint}")


def _suggest_variable(variable: str, known: list[str]) -> str:
    if variable == "ANABRANCH_CONFIG":
        return f"the settings file is named by {_FILE_VARIABLE}"
    moved = _CONFIG_PREFIX + variable.removeprefix(_PREFIX)
    if moved in known:
        return f"did you mean {moved}?"
    close = difflib.get_close_matches(variable, known, n=1)
    if close:
        return f"did you mean {close[0]}?"
    others = ", ".join(name for name in known if not name.startswith(_CONFIG_PREFIX))
    return f"one of {others}, or {_CONFIG_PREFIX} and a field of [config]"


def _gather_options(options: Mapping[str, object], given: _Givens, config: _Givens) -> None:
    for key, value in options.items():
        place = f"--{key.replace('_', '-')}"
        if value is None:
            continue
        if key == "set":
            _gather_sets([value] if isinstance(value, str) else value, config)
        elif key in _SETTINGS_TYPES and key != "config":
            plain = str(value) if isinstance(value, Path) else value
            plain = list(plain) if isinstance(plain, tuple) else plain
            given[key] = _Given(plain, place, is_text=isinstance(plain, str))
        else:
            raise UsageError(f"unknown option {place}: {_suggest(key, [*_SETTINGS_TYPES, 'set'])}")


def _gather_sets(texts: object, config: _Givens) -> None:
    if not isinstance(texts, Iterable):
        raise UsageError(f"--set {texts!r}: expected a list of KEY=VALUE")
    for text in texts:
        key, separator, value = str(text).partition("=")
        key = key.strip()
        if not separator:
            raise UsageError(f"--set {text!r}: use KEY=VALUE, as in probe_interval_s=1")
        if key not in _CONFIG_TYPES:
            raise UsageError(f"--set {text!r}: unknown key {key!r}: {_suggest(key, _CONFIG_TYPES)}")
        config[key] = _Given(value.strip(), "--set", is_text=True)


def _settled(key: str, given: _Given, wanted: Any) -> Any:
    """The value in its own type, checked."""
    value: Any = given.value
    if isinstance(value, str) and get_origin(wanted) is list and given.is_text:
        value = [part.strip() for part in value.split(",") if part.strip()]
    elif isinstance(value, str) and get_origin(wanted) is dict and given.is_text:
        value = dict(_pair(key, part, given.place) for part in value.split(",") if part.strip())
    elif value == "" and type(None) in get_args(wanted) and key != "beacon":
        value = None
    elif isinstance(value, str) and (key == "log_level" or isinstance(wanted, enum.EnumType)):
        value = value.lower()
    try:
        value = msgspec.convert(value, wanted, strict=not given.is_text)
    except msgspec.ValidationError:
        raise UsageError(f"{given.place}: {key} = {given.value!r}: expected {_described(wanted)}") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{given.place}: {key} = {given.value!r}: expected a finite number")
    try:
        _check(key, value)
    except UsageError as error:
        told = given.place
        if not told.endswith((key.upper(), key.replace("_", "-"))):
            told += f": {key}"
        raise UsageError(f"{told}: {error}") from None
    return value


def _pair(key: str, text: str, place: str) -> tuple[str, str]:
    name, equals, kind = text.partition("=")
    if not equals:
        raise UsageError(
            f"{place}: {key} = {text.strip()!r}: expected names with their kinds, as in load=number"
        )
    return name.strip(), kind.strip()


def _check(key: str, value: Any) -> None:
    """Whether a value of the right type can work, as far as one can say without trying."""
    if key == "name" and value is not None:
        PeerId.parse(value)
    elif key in ("listen", "join", "advertise"):
        for text in value:
            parse_address(text)
            if key == "join" and not is_dialable(text):
                raise UsageError(f"address {text!r} cannot be dialled: name one host and its port")
    elif key == "beacon" and value:
        parse_group(value)
    elif key == "beacon_unicast":
        for text in value:
            parse_endpoint(text)


def _suggest(key: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"one of {', '.join(known)}"


def _described(wanted: Any) -> str:
    """A type in words."""
    if get_origin(wanted) in (Union, types.UnionType):
        return " or ".join(_described(each) for each in get_args(wanted) if each is not type(None))
    if get_origin(wanted) is Literal:
        return f"one of {', '.join(get_args(wanted))}"
    if isinstance(wanted, enum.EnumType):
        return f"one of {', '.join(wanted.__members__.values())}"
    if get_origin(wanted) is dict:
        return "a table of names and their kinds"
    names = {float: "a number", int: "a whole number", bool: "true or false", str: "a text"}
    return names.get(wanted, "a list of texts")
