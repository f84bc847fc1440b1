"""Tables of the pages that are made from the code itself: `python docs/tables.py` rewrites them.

`tests/unit/test_docs.py` fails while a page differs from what this makes.
"""

import ast
import enum
import inspect
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from typer.main import get_command

from anabranch.overlay.config import Config
from anabranch.overlay.errors import DropReason
from anabranch.tools.cli import app
from anabranch.transport.settings import Settings

PAGES = [Path(__file__).parent / name for name in ("configuration.md", "concepts.md", "commands.md")]
PRESETS = ("local", "lan", "wan", "harmony")

_REMARKS = {
    "role": "Set by the class that is used: `Peer` makes `peer`, `Client` makes `client`.",
    "listen": "Where links are accepted: `tcp://HOST:PORT` (port 0: any free one) or `ipc://PATH`.",
    "log_level": "Of the program's own log, too: what is less severe is left out.",
}
"""For fields whose struct says nothing."""

_UNITS = (
    (r"^topics$", "tables"),
    (r"_s$", "s"),
    (r"_bytes$", "B"),
    (r"_(max|target)$", "count"),
    (r"_(weight|ratio|threshold)$", "share"),
)


class Row(NamedTuple):
    """One field of a struct."""

    group: str
    name: str
    unit: str
    default: str
    text: str


def page_with_tables(page: str) -> str:
    """The page with each part between `<!-- table: NAME -->` and `<!-- end -->` made anew."""
    tables = {
        "config": config_tables(),
        "settings": settings_table(),
        "presets": presets_table(),
        "reasons": reasons_table(),
        "shared_options": _options_table(_shared_options().values()),
        **{f"command_{name.replace(' ', '_')}": command_table(name) for name in commands()},
    }

    def renewed(found: re.Match[str]) -> str:
        return f"<!-- table: {found[1]} -->\n\n{tables[found[1]]}\n<!-- end -->"

    return re.sub(r"<!-- table: (\w+) -->.*?<!-- end -->", renewed, page, flags=re.DOTALL)


def config_tables() -> str:
    """One table per group of settings of a node."""
    rows = list(_rows(Config))
    groups = dict.fromkeys(row.group for row in rows)
    parts = []
    for group in groups:
        title = [f"### {group}", ""] if group else []
        table = ["| field | unit | default | what it is for |", "| --- | --- | --- | --- |"]
        table += [
            f"| `{row.name}` | {row.unit} | {row.default} | {row.text} |"
            for row in rows
            if row.group == group
        ]
        parts.append("\n".join([*title, *table]) + "\n")
    return "\n".join(parts)


def settings_table() -> str:
    """What a process is told, with the variable that tells it."""
    lines = ["| key | values | default | variable | what it is for |", "| --- | --- | --- | --- | --- |"]
    for row in _rows(Settings):
        is_table = row.name == "config"
        values = "a table `[config]`" if is_table else row.unit
        default = "as above" if is_table else row.default
        variable = "`ANABRANCH_CONFIG_…`" if is_table else f"`ANABRANCH_{row.name.upper()}`"
        lines.append(f"| `{row.name}` | {values} | {default} | {variable} | {row.text} |")
    return "\n".join(lines) + "\n"


def presets_table() -> str:
    """The fields in which a preset differs from the plain defaults."""
    presets = {name: getattr(Config, name)() for name in PRESETS}
    plain = Config()
    lines = [
        "| field | " + " | ".join(f"`{name}()`" for name in PRESETS) + " |",
        "| --- |" + " --- |" * len(PRESETS),
    ]
    for field in Config.__struct_fields__:
        values = [getattr(preset, field) for preset in presets.values()]
        if any(value != getattr(plain, field) for value in values):
            lines.append(f"| `{field}` | " + " | ".join(_shown(field, value) for value in values) + " |")
    return "\n".join(lines) + "\n"


def reasons_table() -> str:
    """Why a message or frame may be dropped."""
    lines = ["| reason | meaning |", "| --- | --- |"]
    lines += [f"| `{DropReason[name].value}` | {text} |" for name, text, _ in _documented(DropReason) if text]
    return "\n".join(lines) + "\n"


def commands() -> dict[str, Any]:
    """Every command by its words, `bench rtt` for one within a group."""
    top: Any = get_command(app)
    found: dict[str, Any] = {}
    for name in top.list_commands(None):
        command = top.get_command(None, name)
        inner = getattr(command, "commands", None)
        found |= {f"{name} {word}": each for word, each in inner.items()} if inner else {name: command}
    return found


def command_table(name: str) -> str:
    """The arguments and options of a command, those that it shares with others by name only."""
    shared = _shared_options()
    own = [each for each in commands()[name].params if not _is_shared(each, shared)]
    table = _options_table(own)
    borrowed = [each for each in commands()[name].params if _is_shared(each, shared)]
    if len(borrowed) == len(shared):
        table += "\nAnd all [shared options](#shared-options).\n"
    elif borrowed:
        names = ", ".join(f"`{each.opts[0]}`" for each in borrowed)
        table += f"\nOf the [shared options](#shared-options): {names}.\n"
    return table


def _shared_options() -> dict[str, Any]:
    """What `peer` takes to become a peer; `--json` means something else for each command."""
    return {each.name: each for each in commands()["peer"].params if each.name != "as_json"}


def _is_shared(option: Any, shared: dict[str, Any]) -> bool:
    return option.name in shared and option.help == shared[option.name].help


def _options_table(options: Iterable[Any]) -> str:
    lines = ["| option | default | what it does |", "| --- | --- | --- |"]
    for option in options:
        if option.name == "help":
            continue
        is_option = option.param_type_name == "option"
        word = option.opts[0] if is_option else option.name.upper() + ("…" if option.nargs == -1 else "")
        if is_option and option.metavar:
            word += f" {option.metavar}"
        has_default = not option.required and option.default is not None and option.default is not False
        default = f"`{option.default}`" if has_default else "required" if option.required else ""
        text = option.help.replace("|", "\\|").replace("*", "\\*")
        lines.append(f"| `{word}` | {default} | {text} |")
    return "\n".join(lines) + "\n"


def _rows(struct: type[msgspec.Struct]) -> Iterator[Row]:
    source = inspect.getsource(struct).splitlines()
    titles = [
        (number, line.strip()[2:]) for number, line in enumerate(source, 1) if line.startswith("    # ")
    ]
    defaults = struct()
    hints = get_type_hints(struct)
    for name, docstring, line_number in _documented(struct):
        group = next((title for number, title in reversed(titles) if number < line_number), "")
        text = " ".join(part for part in (docstring, _REMARKS.get(name, "")) if part)
        if not text:
            raise ValueError(f"{struct.__name__}.{name} says nothing about itself")
        yield Row(group, name, _unit(name, hints[name]), _shown(name, getattr(defaults, name)), text)


def _documented(described: type) -> Iterator[tuple[str, str, int]]:
    """Name, docstring and line of each field or member, in the order of the source."""
    body = ast.parse(inspect.getsource(described)).body[0]
    assert isinstance(body, ast.ClassDef)
    for statement, following in pairwise([*body.body, ast.Pass()]):
        target: ast.expr | None = None
        if isinstance(statement, ast.AnnAssign):
            target = statement.target
        elif isinstance(statement, ast.Assign):
            target = statement.targets[0]
        if isinstance(target, ast.Name):
            yield target.id, _docstring(following), statement.lineno


def _docstring(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return " ".join(str(statement.value.value).split()).replace("|", "\\|")
    return ""


def _unit(name: str, hint: object) -> str:
    for pattern, unit in _UNITS:
        if re.search(pattern, name):
            return unit
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return " or ".join(f"`{member.value}`" for member in hint)
    if hint is bool:
        return "true or false"
    if hint is int:
        return "number"
    if get_origin(hint) is dict:
        return "table"
    choices = [
        choice for part in (hint, *get_args(hint)) for choice in get_args(part) if isinstance(choice, str)
    ]
    if choices:
        return ", ".join(f"`{choice}`" for choice in dict.fromkeys(choices))
    return "list of texts" if "list" in str(hint) else "text"


def _shown(name: str, value: object) -> str:
    if isinstance(value, enum.Enum):
        return f"`{value.value}`"
    if isinstance(value, bool):
        return f"{value}".lower()
    if name.endswith("_bytes") and isinstance(value, int) and value % 1024 == 0:
        scale, unit = (2**20, "MiB") if value % 2**20 == 0 else (2**10, "KiB")
        return f"{value} ({value // scale} {unit})"
    if value is None or value in ([], (), {}):
        return "none"
    return f"`{value}`" if isinstance(value, str) else f"{value}"


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(page_with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
