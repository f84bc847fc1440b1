"""Every Python block of README.md and docs/*.md is run as it stands; what it says it prints, it prints.

A block is a whole program, run in a process of its own, unless a comment right above it says otherwise:
`<!-- run with: peer, other -->` runs it inside a coroutine with two linked peers of these names, and
`<!-- run together -->` starts it and the next block so marked at the same time, as on two hosts. A block
```text right below a program is what it must print. Addresses of hosts become ports of this machine.
"""

import ast
import asyncio
import inspect
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import NamedTuple

import pytest

from anabranch import Client, Config, Message, Peer, UsageError
from anabranch.transport.loops import run

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LIMIT_S = 30
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>run [^\n]*?) -->\n)?"
    r"^```python\n(?P<code>.*?)^```$"
    r"(?:\n+^```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """One block of Python in a page."""

    page: str
    line: int
    mark: str
    code: str
    output: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in BLOCK.finditer(text):
            line = text.count("\n", 0, found.start("code"))
            yield Block(page.name, line, found["mark"] or "", found["code"], found["output"])


ALL = list(blocks())
PROGRAMS = [block for block in ALL if not block.mark]
FRAGMENTS = [block for block in ALL if block.mark == "run with: peer, other"]
TOGETHER = [block for block in ALL if block.mark == "run together"]
PAIRS = list(zip(TOGETHER[::2], TOGETHER[1::2], strict=True))


@pytest.fixture(autouse=True)
def as_users_run_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks say themselves that their mesh is open."""
    monkeypatch.delenv("ANABRANCH_OPEN")


def test_every_block_of_python_in_the_documentation_is_run_by_one_of_these_tests() -> None:
    in_pages = sum(
        len(re.findall(r"^ *```py", page.read_text(encoding="utf-8"), re.MULTILINE)) for page in PAGES
    )
    assert len(PROGRAMS) + len(FRAGMENTS) + len(TOGETHER) == in_pages
    assert PROGRAMS
    assert FRAGMENTS
    assert PAIRS


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_a_program_of_the_documentation_runs_as_it_stands(block: Block, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block.code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, f"{block}:\n{done.stderr}"
    if block.output is not None:
        assert done.stdout == block.output


@pytest.mark.parametrize("block", FRAGMENTS, ids=str)
def test_a_fragment_of_the_documentation_runs_among_linked_peers(block: Block) -> None:
    async def execute() -> None:
        listen = "tcp://127.0.0.1:0"
        config = Config.local()
        async with (
            asyncio.timeout(LIMIT_S),
            Peer("peer", listen=listen, config=config, open=True) as peer,
            Peer("other", listen=listen, join=peer.addresses, config=config, open=True) as other,
        ):
            await peer.wait_for_peers("other", timeout=10)
            names: dict[str, object] = {
                each.__name__: each for each in (Client, Config, Message, Peer, UsageError)
            }
            names |= {"peer": peer, "other": other, "asyncio": asyncio}
            running = eval(compiled(block), names)
            if inspect.isawaitable(running):
                await running

    run(execute())


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0]}+{pair[1].line}")
def test_programs_for_two_hosts_find_each_other(pair: tuple[Block, Block], tmp_path: Path) -> None:
    here = on_this_machine(free_port())
    started = [
        subprocess.Popen(
            [sys.executable, "-u", "-W", "error", "-c", here(block.code)],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for block in pair
    ]
    try:
        for block, process in zip(pair, started, strict=True):
            output, errors = process.communicate(timeout=LIMIT_S)
            assert process.returncode == 0, f"{block}:\n{errors}"
            if block.output is not None:
                assert output == block.output
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.communicate()


def compiled(block: Block) -> CodeType:
    return compile(block.code, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def on_this_machine(port: int) -> Callable[[str], str]:
    def changed(code: str) -> str:
        code = code.replace("tcp://192.0.2.10:7400", f"tcp://127.0.0.1:{port}")
        return code.replace("tcp://0.0.0.0:7400", f"tcp://127.0.0.1:{port}")

    return changed
