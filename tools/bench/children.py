"""The processes of one measurement, seen from the bench's parent: start, wait with a limit, end by pid."""

import contextlib
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any, Self

import msgspec

from anabranch.tools.bench.jobs import BenchError, Job

COMMAND = [sys.executable, "-m", "anabranch.tools.bench.child"]
"""What runs a job, given as the next argument."""

_END_TIMEOUT_S = 5.0
_STDERR_SHOWN = 4000


class Children:
    """All processes of one measurement. Leaving the context, also by Ctrl-C, ends every one of them."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="anabranch-bench-"))
        self._started: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for child in self._started:
                child.kill()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def start(self, job: Job) -> "Child":
        """Start a process for the job, with a directory of its own."""
        directory = self._directory / f"{len(self._started)}-{job.system}-{job.role}"
        directory.mkdir()
        child = Child(msgspec.structs.replace(job, directory=str(directory)))
        self._started.append(child)
        return child

    def finish(self) -> None:
        """Tell all that they are not needed any more and wait until they ended, without a failure."""
        for child in self._started:
            child.tell(stop=True)
        deadline = time.monotonic() + _END_TIMEOUT_S
        for child in self._started:
            child.wait_end(deadline)


class Child:
    """One process. Its events are read as they come, so that it never waits for us."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._stderr_path = Path(job.directory) / "stderr"
        with self._stderr_path.open("wb") as stderr:
            self._process = subprocess.Popen(
                [*COMMAND, msgspec.json.encode(job).decode()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C reaches the parent alone, which ends us
            )
        self._events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        assert self._process.stdout is not None
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def expect(self, event: str, timeout_s: float) -> dict[str, Any]:
        """Wait for the child to report `event`; another one, its end or the time-out is a BenchError."""
        try:
            report = self._events.get(timeout=timeout_s)
        except queue.Empty:
            raise BenchError(self._failure(f"did not report {event!r} within {timeout_s:.0f} s")) from None
        if report is None:
            code = self._process.wait()
            raise BenchError(self._failure(f"ended with code {code} instead of reporting {event!r}"))
        if report.get("event") != event:
            raise BenchError(self._failure(f"reported {report} instead of {event!r}"))
        return report

    def tell(self, **order: Any) -> None:
        """Send an order; a child that ended already is noticed by `expect` or `wait_end`."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(msgspec.json.encode(order) + b"\n")
            self._process.stdin.flush()

    def wait_end(self, deadline: float) -> None:
        """Wait until the process ended; a failure is a BenchError, one that hangs too."""
        try:
            code = self._process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise BenchError(self._failure(f"did not end within {_END_TIMEOUT_S:.0f} s")) from None
        if code != 0:
            raise BenchError(self._failure(f"ended with code {code}"))

    def kill(self) -> None:
        """End the process, whatever it does, and let go of its pipes. Idempotent."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        # The wrapper of a server ends what it started when its input closes; give it the moment that takes.
        if self._job.role == "serve":
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_TIMEOUT_S)
        self._process.kill()
        self._process.wait()

    def _read(self, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                try:
                    self._events.put(msgspec.json.decode(line))
                except msgspec.DecodeError:
                    self._events.put({"event": "unreadable", "line": repr(line[:200])})
        self._events.put(None)

    def _failure(self, what: str) -> str:
        text = self._stderr_path.read_text(errors="replace").strip()
        output = f"; it wrote:\n{text[-_STDERR_SHOWN:]}" if text else "; it wrote nothing to stderr"
        return f"the {self._job.role} process of {self._job.system} {what}{output}"
