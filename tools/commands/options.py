"""The options that commands share, and how they become checked settings.

Every command that has a peer of its own is decorated with `with_settings`.
"""

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer

from anabranch.overlay.attributes import check_attributes
from anabranch.overlay.errors import UsageError

if TYPE_CHECKING:
    from anabranch.transport.settings import Settings

N = TypeVar("N", bound=float | None)
Texts = list[str] | None
_GROUP = "udp://239.192.7.40:7400"

_OPTIONS: dict[str, Any] = {
    "file": Annotated[
        Path | None, typer.Option("--file", metavar="TOML", help="Settings file; see ANABRANCH_FILE too.")
    ],
    "name": Annotated[
        str | None, typer.Option("--name", help="Name in the mesh; by default one is made up.")
    ],
    "listen": Annotated[
        Texts,
        typer.Option("--listen", metavar="ADDRESS", help="Accept links here: tcp://HOST:PORT or ipc://PATH."),
    ],
    "join": Annotated[
        Texts,
        typer.Option("--join", metavar="ADDRESS", help="A peer of the mesh; repeat it for more than one."),
    ],
    "advertise": Annotated[
        Texts,
        typer.Option("--advertise", metavar="ADDRESS", help="What others shall dial, if not --listen (NAT)."),
    ],
    "beacon": Annotated[
        str | None,
        typer.Option("--beacon", metavar="GROUP", help=f"Find peers by UDP multicast, as in {_GROUP}."),
    ],
    "beacon_unicast": Annotated[
        Texts,
        typer.Option("--beacon-unicast", metavar="HOST:PORT", help="Beacon to this host too; with --beacon."),
    ],
    "log_dir": Annotated[
        Path | None,
        typer.Option("--log-dir", metavar="DIR", help="Write probe, link, route and delivery records."),
    ],
    "profile": Annotated[
        Path | None,
        typer.Option("--profile", metavar="JSON", help="What `anabranch analyze` learned about links."),
    ],
    "store_dir": Annotated[
        Path | None,
        typer.Option(
            "--store-dir", metavar="DIR", help="Store for persistent publishers and durable subscriptions."
        ),
    ],
    "identity": Annotated[
        Path | None,
        typer.Option("--identity", metavar="PATH", help="Certificate and key; see `anabranch keys issue`."),
    ],
    "open": Annotated[
        bool | None,
        typer.Option("--open", help="An open mesh: whoever reaches a peer may join."),
    ],
    "preset": Annotated[
        str | None, typer.Option("--preset", help="Timing to start from: local, lan, wan or harmony.")
    ],
    "set": Annotated[
        Texts, typer.Option("--set", metavar="KEY=VALUE", help="One field of the configuration; repeatable.")
    ],
    "log_format": Annotated[
        str | None, typer.Option("--log-format", help="The program's own log on stderr: console or json.")
    ],
    "log_level": Annotated[
        str | None, typer.Option("--log-level", help="What it shows: debug, info, warning or error.")
    ],
}
OBSERVER = ("file", "join", "identity", "open", "preset", "set", "log_format", "log_level")
"""What a command takes that only looks at a running peer."""


def with_settings(*names: str) -> Callable[[Callable[..., int]], Callable[..., None]]:
    """Give a command these options (all, if none is named), and call it with the checked `settings`.

    The command returns its exit code. Its own parameters stay as they are.
    """
    chosen = {name: _OPTIONS[name] for name in names or _OPTIONS}

    def decorate(command: Callable[..., int]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            given = {name: arguments.pop(name) for name in chosen}
            settings = _load({name: None if value == [] else value for name, value in given.items()})
            raise typer.Exit(command(settings=settings, **arguments))

        own = [
            each
            for name, each in inspect.signature(command, eval_str=True).parameters.items()
            if name != "settings"
        ]
        shared = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, annotation in chosen.items()
        ]
        run.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in [*own, *shared]}
        return run

    return decorate


def checked_number(option: str, value: N, least: float, most: float) -> N:
    """The value of an option, if it lies within its limits or was not given."""
    if value is not None and not least <= value <= most:
        raise UsageError(f"{option} {value:.12g}: must be from {least:.12g} to {most:.12g}")
    return value


def _load(given: dict[str, Any]) -> "Settings":
    from anabranch.tools.commands.program_log import configure
    from anabranch.transport.settings import load_settings

    settings = load_settings(file=given.pop("file"), environ=os.environ, options=given)
    configure(settings.log_format, settings.log_level)
    return settings


def checked_attributes(text: str | None, model: Mapping[str, str]) -> dict[str, object] | None:
    """The value of --attributes, a JSON object; None if it was not given."""
    if text is None:
        return None
    try:
        given = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"--attributes {text!r} is not JSON ({error}): as in '{{\"load\": 0.9}}'") from None
    check_attributes(given, model)
    attributes: dict[str, object] = given
    return attributes
