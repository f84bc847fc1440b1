"""Processes of an emulated mesh, seen from the one that started them: orders, events, output, end."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import msgspec

from anabranch.tools.testbed.orders import Leave

END_TIMEOUT_S = 6.0
"""A child that has not ended by then is killed: a little more than `parent.ORPHAN_GRACE_S`."""
_EVENT_MAX_BYTES = 4 * 1024 * 1024
_SHOWN_CHARS = 4000


class Child:
    """One process that runs a module which talks through `Parent`. Made by `start`; `end` it in any case."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, stderr_path: Path) -> None:
        self.name = name
        self.stderr_path = stderr_path
        self.was_killed = False
        """Whether it did not end when it was told to."""
        self._process = process

    @classmethod
    async def start(cls, name: str, module: str, stderr_path: Path, *arguments: str) -> Self:
        """Run `python -m module arguments`; what it writes to stderr goes to that file."""
        with stderr_path.open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    "-P",
                    "-m",
                    module,
                    *arguments,
                ),  # -P: files in the current directory shadow no module
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                limit=_EVENT_MAX_BYTES,
                start_new_session=True,  # Ctrl-C reaches the parent alone, which ends its children in order
            )
        return cls(name, process, stderr_path)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.returncode

    def tell(self, order: object) -> None:
        """Send an order; a child that has ended is noticed by `events`."""
        stdin = self._process.stdin
        assert stdin is not None
        if not stdin.is_closing():
            stdin.write(msgspec.json.encode(order) + b"\n")

    def leave(self) -> None:
        """Let it end in order."""
        self.tell(Leave())

    async def events(self) -> AsyncIterator[bytes]:
        """What it tells, line by line, until it ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            yield line

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        return await self._process.wait()

    async def end(self, timeout_s: float = END_TIMEOUT_S) -> None:
        """Close its stdin, which ends it; kill it if that takes too long. Idempotent."""
        stdin = self._process.stdin
        assert stdin is not None
        stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), timeout_s)
        except TimeoutError:
            self.was_killed = True
            self.kill()
            await self._process.wait()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await stdin.wait_closed()

    def kill(self) -> None:
        """At once, if it still runs."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def wrote(self) -> str:
        """The last of what it wrote to stderr."""
        try:
            return self.stderr_path.read_text(errors="replace").strip()[-_SHOWN_CHARS:]
        except OSError as error:
            return f"(cannot be read: {error})"
