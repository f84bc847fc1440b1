"""The command `anabranch`: names its sub-commands and loads the one that is called, and nothing else.

Whatever the user got wrong is told on stderr, with what would do instead, and ends with code 2.
"""

import difflib
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from anabranch.overlay.errors import UsageError

_COMMANDS = {
    "peer": ("anabranch.tools.commands.peer:peer", "Run a peer until it is told to stop."),
    "pub": ("anabranch.tools.commands.pub:pub", "Publish a payload, lines of stdin or random bytes."),
    "sub": ("anabranch.tools.commands.sub:sub", "Print the messages of matching topics."),
    "request": ("anabranch.tools.commands.request:request", "Ask all who want a topic; print their replies."),
    "links": ("anabranch.tools.commands.views:links", "Show the links of a running peer, or of its mesh."),
    "routes": ("anabranch.tools.commands.views:routes", "Show the routes that a running peer uses."),
    "keys": ("anabranch.tools.commands.keys:keys_app", "Make and revoke the identities of a secured mesh."),
    "topics": (
        "anabranch.tools.commands.topics:topics_app",
        "Create, find and grant topics of a secured mesh.",
    ),
    "sim": ("anabranch.tools.commands.sim:sim", "Run a mesh in virtual time."),
    "testbed": (
        "anabranch.tools.commands.testbed:testbed_app",
        "Run real peers over an emulated network.",
    ),
    "replay": ("anabranch.tools.commands.replay:replay_app", "Run a mesh over a recorded network."),
    "demo": ("anabranch.tools.demo.command:demo", "Run a local mesh that shows itself working."),
    "analyze": ("anabranch.tools.analytics.command:analyze", "Say from logs what links and topics did."),
    "bench": ("anabranch.tools.bench.cli:bench_app", "Measure throughput, round trips and relaying."),
}
"""Where each sub-command is, and its line in the help."""


def main() -> None:
    """The entry point."""
    try:
        app()
    except UsageError as error:
        sys.stderr.write(f"Error: {error}\n")
        sys.exit(2)


class _LazyCommands(TyperGroup):
    """Loads a sub-command when it is called: most need ZeroMQ, and `--help` should not."""

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        del ctx
        if cmd_name not in _COMMANDS:
            close = difflib.get_close_matches(cmd_name, _COMMANDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"one of {', '.join(_COMMANDS)}"
            raise UsageError(f"unknown command {cmd_name!r}: {hint}")
        return _load(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


app = typer.Typer(
    cls=_LazyCommands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from anabranch import __version__

        sys.stdout.write(f"anabranch {__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Publish and subscribe over a mesh of peers that watches its links and routes around trouble.

    Settings come from a TOML file (--file, or ANABRANCH_FILE), then ANABRANCH_* variables, then options; the
    later ones win. Exit codes: 0 done, or told to stop; 1 it could not be done (nobody wanted it, no peer
    answered, nothing came in time); 2 something in the call or the settings is wrong; 128 + the signal's
    number when a pub, or a sub that counts, was stopped before its end.
    """


def _load(name: str) -> Any:
    module, _, attribute = _COMMANDS[name][0].partition(":")
    target = getattr(import_module(module), attribute)
    holder = typer.Typer(add_completion=False, rich_markup_mode=None)
    holder.callback()(lambda: None)
    if isinstance(target, typer.Typer):
        holder.add_typer(target, name=name)
    else:
        holder.command(name)(target)
    group: Any = get_command(holder)
    return group.commands[name]
