"""House rules that no linter knows: small files, docstrings that exist, one socket factory, no leftovers."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("overlay", "transport", "security", "tools")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
OWN = sorted(path for path in (ROOT / "src" / "anabranch").glob("*.py") if not path.is_symlink())
EVERYTHING = [
    *SOURCES,
    *OWN,
    *sorted((ROOT / "tests").rglob("*.py")),
    *sorted((ROOT / "examples").rglob("*.py")),
]
LINES_MAX = 400
NODE_LINES_MAX = 300
HEAD_LINES_MAX = 3
"""Lines of a module's docstring that stand before its first blank line."""
SOCKET_FACTORIES = {"transport/sockets.py", "tools/bench/raw.py", "tools/bench/raw_asyncio.py"}
LEFTOVERS = re.compile(r"\b(T[O]DO|F[I]XME|X{3}|H[A]CK)\b")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:home|root|work|Users|mnt)/\w")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def each(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=name_of)


def definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Public classes, functions and methods with their dotted names, those inside functions left out."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if statement.name.startswith("_") or _is_setter(statement):
                continue
            yield prefix + statement.name, statement
            if isinstance(statement, ast.ClassDef):
                yield from definitions(statement.body, f"{prefix}{statement.name}.")


@each(SOURCES + OWN)
def test_files_are_small_enough_to_be_read_in_one_go(path: Path) -> None:
    limit = NODE_LINES_MAX if name_of(path) == "overlay/node.py" else LINES_MAX
    assert len(path.read_text().splitlines()) <= limit


@each(SOURCES + OWN)
def test_every_module_says_what_it_knows_and_decides(path: Path) -> None:
    head = ast.get_docstring(tree_of(path))
    assert head, "a module begins with its docstring"
    assert len(head.split("\n\n")[0].splitlines()) <= HEAD_LINES_MAX


@each(SOURCES + OWN)
def test_every_public_name_has_a_docstring(path: Path) -> None:
    bare = [name for name, node in definitions(tree_of(path).body) if not ast.get_docstring(node)]  # type: ignore[arg-type]
    assert bare == []


@each(SOURCES + OWN)
def test_no_exception_is_caught_without_a_name_and_none_is_swallowed_whole(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"line {node.lineno}: bare except"
            names = {name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)}
            if names & {"Exception", "BaseException"}:
                assert not all(isinstance(s, ast.Pass) for s in node.body), f"line {node.lineno}: swallowed"


@each([path for path in SOURCES + OWN if not name_of(path).startswith("tools/")])
def test_only_the_command_prints(path: Path) -> None:
    calls = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]
    printed = [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
    assert printed == []


@each(SOURCES + OWN)
def test_sockets_are_made_in_one_place(path: Path) -> None:
    makes = [
        node.lineno
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _makes_a_zmq_socket(node)
    ]
    if name_of(path) in SOCKET_FACTORIES:
        assert makes, "moved? then name its new home here"
    else:
        assert makes == []


@each(EVERYTHING)
def test_nothing_is_left_to_do_and_no_path_is_of_one_machine(path: Path) -> None:
    text = path.read_text()
    assert LEFTOVERS.findall(text) == []
    assert MACHINE_PATHS.findall(text) == []


def test_the_rules_see_every_package() -> None:
    """A renamed directory would make them pass by looking at nothing."""
    for package in PACKAGES:
        assert any(name_of(path).startswith(f"{package}/") for path in SOURCES)
    assert ROOT / "overlay" / "node.py" in SOURCES
    assert ROOT / "src" / "anabranch" / "__init__.py" in OWN


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        (
            "try:\n    x()\nexcept:\n    y()\n",
            test_no_exception_is_caught_without_a_name_and_none_is_swallowed_whole,
        ),
        (
            "try:\n    x()\nexcept Exception:\n    pass\n",
            test_no_exception_is_caught_without_a_name_and_none_is_swallowed_whole,
        ),
        ("print('x')\n", test_only_the_command_prints),
        ("s = context.socket(zmq.PUB)\n", test_sockets_are_made_in_one_place),
        ("import zmq\ns = zmq.Socket(c, zmq.PUB)\n", test_sockets_are_made_in_one_place),
        ("# {} later\n".format("ODOT"[::-1]), test_nothing_is_left_to_do_and_no_path_is_of_one_machine),
        ("p = '/{}/me/x'\n".format("home"), test_nothing_is_left_to_do_and_no_path_is_of_one_machine),
        ("class A:\n    pass\n", test_every_public_name_has_a_docstring),
        ("class A:\n    '''A.'''\n    def b(self): ...\n", test_every_public_name_has_a_docstring),
        ("x = 1\n", test_every_module_says_what_it_knows_and_decides),
        ("x = 1\n" * 401, test_files_are_small_enough_to_be_read_in_one_go),
    ],
)
def test_the_rules_find_what_they_forbid(
    source: str,
    rule,  # type: ignore[no-untyped-def]
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    guilty = tmp_path / "guilty.py"
    guilty.write_text(source)
    with pytest.raises(AssertionError):
        rule(guilty)


def _is_setter(statement: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    decorators = statement.decorator_list
    return any(
        isinstance(decorator, ast.Attribute) and decorator.attr == "setter" for decorator in decorators
    )


def _makes_a_zmq_socket(call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr == "Socket":
        return isinstance(call.func.value, ast.Name) and call.func.value.id == "zmq"
    if call.func.attr != "socket":
        return False
    owner = call.func.value
    return not (isinstance(owner, ast.Name) and owner.id == "socket")
