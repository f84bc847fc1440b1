"""Writes log records to rolled JSON-lines files without ever holding up the caller.

`write` appends to a bounded buffer; a thread of its own encodes and writes. Files appear under their
final name only when they are whole, because readers of a directory take each file once.
"""

import contextlib
import copy
import fcntl
import os
import re
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

import msgspec
import structlog

from anabranch.overlay.errors import UsageError
from anabranch.overlay.identifiers import PeerId
from anabranch.overlay.records import LogRecord

_POLL_S = 0.2
"""How often the thread looks into the buffer: waking it from `write` would cost more than the append."""
_CHUNK_RECORDS = 256
"""Encoded at once. Encoding holds the interpreter for about 0.1 ms then; the system call after it lets go."""
_UNENCODABLE = (TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, msgspec.MsgspecError)
_log = structlog.get_logger("anabranch.logwriter")


class LogWriter:
    """The log of one peer in `directory`: `<peer>-<start>-<n>.jsonl`, one record per line, `ts` in wall µs.

    The file being written ends in `.part`; it is renamed once it reaches `roll_bytes`, is `roll_s` old, or
    the writer is closed. What a crashed process of the same peer left as `.part` is renamed at the start;
    its last line may be torn. Call `close` at the end, or the records of the last moments are lost.
    """

    dropped: int
    """Records that found the buffer full or the writer closed, or were left at the deadline of `close`."""
    failed: int
    """Records lost because the disk refused them or they could not be encoded."""
    written: int
    """Records handed to the operating system."""

    def __init__(
        self,
        directory: Path,
        peer: str,
        *,
        wall_offset_us: int,
        buffer_max: int = 100_000,
        roll_bytes: int = 64 * 1024 * 1024,
        roll_s: float = 60.0,
    ) -> None:
        """Create the directory; UsageError if it can't be written. `wall_offset_us` is added to each `ts`."""
        self.dropped = self.failed = self.written = 0
        self._directory = directory
        self._peer = PeerId.parse(peer)
        self._wall_offset_us = wall_offset_us
        self._buffer: deque[LogRecord] = deque()
        self._room = buffer_max
        self._roll_bytes = roll_bytes
        self._roll_s = roll_s
        self._start_us = time.time_ns() // 1000
        self._number = 0
        self._file: _PartFile | None = None
        self._encoder = msgspec.json.Encoder(enc_hook=_plain)
        self._told = False
        self._closing = threading.Event()
        self._deadline = float("inf")
        _check_writable(directory)
        self._finish_leftovers()
        self._thread = threading.Thread(target=self._run, name=f"log of {peer}", daemon=True)
        self._thread.start()

    def write(self, record: LogRecord) -> None:
        """Take a record over; the caller must not change it afterwards. Never blocks, never raises."""
        if len(self._buffer) < self._room:
            self._buffer.append(record)
        else:
            self.dropped += 1

    def close(self, timeout: float = 2.0) -> None:
        """Write what is buffered, for at most `timeout` seconds, and rename the last file. Blocks so long."""
        self._room = 0
        if self._closing.is_set():
            return
        self._deadline = time.monotonic() + timeout
        self._closing.set()
        self._thread.join(timeout + _POLL_S)
        self.dropped += len(self._buffer)

    # From here on: the thread

    def _run(self) -> None:
        closing = False
        while not closing:
            closing = self._closing.wait(_POLL_S)
            waiting = len(self._buffer)  # later ones wait for the next round: few large writes
            while waiting and time.monotonic() < self._deadline:
                count = min(waiting, _CHUNK_RECORDS)
                waiting -= count
                self._write_chunk([self._buffer.popleft() for _ in range(count)])
                self._roll()
            self._roll()
        self._finish()

    def _roll(self) -> None:
        file = self._file
        if file and (file.size >= self._roll_bytes or time.monotonic() - file.opened_at >= self._roll_s):
            self._finish()

    def _write_chunk(self, records: list[LogRecord]) -> None:
        lines, count = self._encode(records)
        if not count:
            return
        try:
            self._file = self._file or self._open()
            self._file.append(lines)
            self.written += count
        except OSError as error:
            self.failed += count
            self._tell(error)
            self._finish()

    def _encode(self, records: list[LogRecord]) -> tuple[bytes, int]:
        """The lines of these records and how many there are."""
        try:
            return self._encoder.encode_lines([self._stamped(record) for record in records]), len(records)
        except _UNENCODABLE as error:
            if len(records) == 1:
                self.failed += 1
                self._tell(error)
                return b"", 0
        parts = [self._encode([record]) for record in records]
        return b"".join(lines for lines, _ in parts), sum(count for _, count in parts)

    def _stamped(self, record: LogRecord) -> LogRecord:
        """A copy on the wall clock: the record itself may be in somebody else's hands too."""
        stamped = copy.copy(record)
        stamped.ts += self._wall_offset_us
        return stamped

    def _open(self) -> "_PartFile":
        self._directory.mkdir(parents=True, exist_ok=True)
        while True:
            final = self._directory / f"{self._peer}-{self._start_us}-{self._number:05d}.jsonl"
            self._number += 1
            with contextlib.suppress(FileExistsError):
                if not final.exists():
                    return _PartFile(final)

    def _finish(self) -> None:
        file, self._file = self._file, None
        if file:
            try:
                file.finish()
            except OSError as error:
                self._tell(error)

    def _finish_leftovers(self) -> None:
        """Rename what a crashed process of this peer left; a file that a living one holds locked stays."""
        ours = re.compile(re.escape(self._peer) + r"-\d+-\d+\.jsonl\.part")
        for part in sorted(self._directory.glob("*.jsonl.part")):
            if ours.fullmatch(part.name):
                try:
                    _finish_leftover(part)
                except OSError as error:
                    self._tell(error)

    def _tell(self, error: Exception) -> None:
        """Say once what went wrong; the counters tell the rest."""
        if not self._told:
            self._told = True
            directory, cause = str(self._directory), str(error)
            with contextlib.suppress(OSError, ValueError):  # the program's own log may be closed or full too
                _log.warning("log_write_failed", directory=directory, peer=self._peer, error=cause)


class _PartFile:
    """The file being written. Unbuffered: a chunk is with the operating system when `append` returns."""

    def __init__(self, final: Path) -> None:
        self.size = 0
        self.opened_at = time.monotonic()
        self._final = final
        self._part = final.with_name(final.name + ".part")
        self._fd = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with contextlib.suppress(OSError):  # some network file systems have no locks; then nobody checks them
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def append(self, lines: bytes) -> None:
        """Write all of it, or take it back and raise: go on with another file then."""
        view = memoryview(lines)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self.size)
            raise
        self.size += len(lines)

    def finish(self) -> None:
        """Give it its final name; an empty file just goes. Closed last: the lock ends with it."""
        try:
            if self.size:
                self._part.rename(self._final)
            else:
                self._part.unlink(missing_ok=True)
        finally:
            os.close(self._fd)


def _finish_leftover(part: Path) -> None:
    fd = os.open(part, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        final = part.with_name(part.name.removesuffix(".part"))
        if os.fstat(fd).st_size == 0:
            part.unlink()
        elif not final.exists():
            part.rename(final)
    except BlockingIOError:
        pass
    finally:
        os.close(fd)


def _plain(value: object) -> str:
    """Peer names are a subclass of str, which msgspec does not encode by itself."""
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError(f"a log record holds a {type(value).__name__}")


def _check_writable(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise UsageError(
            f"log directory {str(directory)!r} cannot be written ({error.strerror}): "
            "name another one as log_dir, or give this user the right to write there"
        ) from error
