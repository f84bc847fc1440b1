"""What the documentation says about the code is what the code says: tables, files, rows, links, commands."""

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from anabranch import __version__
from anabranch.overlay.config import Config
from anabranch.tools.scenarios.reading import parse_scenario
from anabranch.transport.settings import load_settings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))]
CODE = ("overlay", "transport", "tools")


def load_program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"documentation_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLES = load_program("tables")
FIGURES = load_program("figures")


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", TABLES.PAGES, ids=lambda page: page.name)
def test_tables_made_from_the_code_are_up_to_date(page: Path) -> None:
    text = text_of(page)
    assert text == TABLES.page_with_tables(text), f"{page.name} is out of date: run python docs/tables.py"


def test_every_setting_has_a_line_with_its_default() -> None:
    page = text_of(DOCS / "configuration.md")
    for name in Config.__struct_fields__:
        assert re.search(rf"^\| `{name}` \| [^|]+ \| [^|]+ \| .{{10,}} \|$", page, re.MULTILINE), name


def test_every_command_has_a_table_of_its_options() -> None:
    page = text_of(DOCS / "commands.md")
    readme = text_of(ROOT / "README.md")
    for words, command in TABLES.commands().items():
        assert f"<!-- table: command_{words.replace(' ', '_')} -->" in page
        assert f"anabranch {words.split()[0]}" in readme
        for option in command.params:
            assert option.name == "help" or option.help, f"{words} {option.name} has no help"


def test_figures_counted_from_the_code_are_up_to_date() -> None:
    assert text_of(FIGURES.OPEN_RANGES) == FIGURES.open_ranges(), "run: python docs/figures.py"
    table = text_of(DOCS / "addressing.md")
    for count, with_open, closed, here in FIGURES.growth()[3::4]:
        assert f"| {count} | {2**count} | {with_open} | {closed} | {here} |" in table


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        aim = (page.parent / name).resolve() if name else page
        assert aim.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(aim), f"{page.name}: {target}"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def rows_of_the_core() -> list[list[str]]:
    found = re.search(r"<!-- rows -->\n(.*?)<!-- end -->", text_of(ROOT / "ARCHITECTURE.md"), re.DOTALL)
    assert found is not None
    return [re.findall(r"`(\w+)`", line.split("|")[2]) for line in found[1].splitlines()[2:]]


def test_the_rows_of_the_core_are_those_that_the_import_rules_enforce() -> None:
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each.get("containers") == ["anabranch.overlay"])
    enforced = [layer.split(" | ") for layer in reversed(layers)]
    for row in rows_of_the_core():
        together: list[str] = []
        while len(together) < len(row):
            together += enforced.pop(0)
        assert sorted(together) == sorted(row)
    assert not enforced


def test_the_architecture_names_files_that_exist() -> None:
    text = text_of(ROOT / "ARCHITECTURE.md")
    for line in text.splitlines():
        folder = ""
        for name in re.findall(r"`([\w./-]+\.py)`", line):
            if "/" in name:
                folder = str(Path(name).parent)
            places = [folder] if folder else ["overlay", "transport", "security", "src/anabranch"]
            candidates = [name] if "/" in name else [f"{place}/{name}" for place in places]
            assert any((ROOT / each).exists() for each in candidates), f"{name} in: {line}"


def test_the_architecture_has_a_place_for_every_file_outside_the_core() -> None:
    text = text_of(ROOT / "ARCHITECTURE.md")
    for folder in ("transport", "security", "src/anabranch"):
        for path in (ROOT / folder).glob("*.py"):
            assert path.name == "__init__.py" or f"{path.name}`" in text, path.name


FILES_OF_THREATS = {
    "": "tests/real/test_secured_mesh.py",
    "N:": "tests/unit/test_trusted_nodes.py",
    "C:": "tests/unit/test_credentials.py",
    "B:": "tests/sim/test_byzantine.py",
    "A:": "tests/unit/test_advertisements.py",
    "G:": "tests/unit/test_grants.py",
    "Q:": "tests/unit/test_topic_queries.py",
    "T:": "tests/real/test_topics_hostile.py",
    "F:": "tests/sim/test_fairness.py",
    "S:": "tests/unit/test_sharing.py",
    "D:": "tests/sim/test_dropping_relays.py",
    "Y:": "tests/sim/test_sybils.py",
    "E:": "tests/unit/test_sessions.py",
}


def test_the_tests_named_for_threats_exist() -> None:
    table = text_of(DOCS / "security.md").partition("## Threats")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in table.splitlines() if re.match(r"\| \d", line)]
    assert len(rows) > 10
    for row in rows:
        named = re.findall(r"([A-Z]:)?`([^`]+)`", row[3])
        assert named, row
        for place, name in named:
            if "/" in name:
                assert (ROOT / name).exists(), name
            else:
                assert f"def test_{name}(" in text_of(ROOT / FILES_OF_THREATS[place]), name


def test_the_readme_names_every_page_and_every_command() -> None:
    readme = text_of(ROOT / "README.md")
    for page in DOCS.glob("*.md"):
        assert f"(docs/{page.name}) |" in readme, page.name
    for words in TABLES.commands():
        assert f"| `anabranch {words.split()[0]}" in readme, words


def test_every_counter_in_the_code_is_explained() -> None:
    explained = set(re.findall(r"`([\w.]+)`", text_of(DOCS / "concepts.md").partition("## Counters")[2]))
    calls = re.compile(r'counters(?:\.add\("([\w.]+)"|\["([\w.]+)"\] *\+?= )')
    for folder in ("overlay", "transport", "transport/topics", "src/anabranch"):
        for path in (ROOT / folder).glob("*.py"):
            for match in calls.finditer(text_of(path)):
                name = match[1] or match[2]
                assert name in explained, f"{path.name} counts {name!r}"


def test_files_shown_as_toml_are_valid() -> None:
    shown = re.findall(r"^```toml\n(.*?)^```", text_of(DOCS / "configuration.md"), re.DOTALL | re.MULTILINE)
    assert shown
    for text in shown:
        table = tomllib.loads(text)
        options = {key: value for key, value in table.items() if key != "config"}
        sets = [f"{key}={value}" for key, value in table["config"].items()]
        settings = load_settings(file=None, environ={}, options={**options, "set": sets})
        assert settings.name == table["name"]


def test_scenarios_shown_as_toml_are_valid() -> None:
    shown = re.findall(r"^```toml\n(.*?)^```", text_of(DOCS / "commands.md"), re.DOTALL | re.MULTILINE)
    assert shown
    for text in shown:
        assert parse_scenario(text, "commands.md").peers


def test_the_changelog_has_this_version() -> None:
    assert re.search(rf"^## .*\b{re.escape(__version__)}\b", text_of(ROOT / "CHANGELOG.md"), re.MULTILINE)


def test_the_example_of_the_readme_is_short() -> None:
    first = re.search(r"^```python\n(.*?)^```", text_of(ROOT / "README.md"), re.DOTALL | re.MULTILINE)
    assert first is not None
    assert len([line for line in first[1].splitlines() if line.strip()]) <= 12
