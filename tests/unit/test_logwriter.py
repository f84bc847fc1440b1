"""The log writer: nothing lost unseen, files whole under their final name, the caller never held up."""

import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from anabranch.overlay.errors import UsageError
from anabranch.overlay.identifiers import PeerId
from anabranch.overlay.records import ControlRecord, LinkRecord
from anabranch.transport import logwriter
from anabranch.transport.logwriter import LogWriter


def record(ts: int = 1) -> LinkRecord:
    return LinkRecord(ts=ts, peer="a", epoch=7, neighbour="b", state="up", cause="hello")


def lines(*paths: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def finished(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.jsonl"))


def parts(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.part"))


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "waited 10 s in vain"
        threading.Event().wait(0.01)


def test_records_are_written_on_the_wall_clock_and_left_unchanged(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "logs"
    writer = LogWriter(directory, "a", wall_offset_us=1_000_000)
    shared = record(ts=5)
    writer.write(shared)
    writer.write(ControlRecord(ts=6, peer=PeerId("a"), epoch=7, counters={"x": 1}))
    writer.close()
    (path,) = finished(directory)
    assert path.name.startswith("a-")
    assert lines(path) == [
        {
            "kind": "link",
            "ts": 1_000_005,
            "peer": "a",
            "epoch": 7,
            "neighbour": "b",
            "state": "up",
            "cause": "hello",
            "connection": 0,
        },
        {"kind": "control", "ts": 1_000_006, "peer": "a", "epoch": 7, "counters": {"x": 1}, "variant": ""},
    ]
    assert shared.ts == 5
    assert parts(directory) == []
    assert (writer.written, writer.dropped, writer.failed) == (2, 0, 0)


def test_the_order_is_kept_over_many_chunks_and_files(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, "a", wall_offset_us=0, roll_bytes=50_000)
    for ts in range(5000):
        writer.write(record(ts))
    writer.close()
    assert len(finished(tmp_path)) > 5
    assert [line["ts"] for line in lines(*finished(tmp_path))] == list(range(5000))


def test_lines_reach_the_system_while_the_file_is_still_open(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, "a", wall_offset_us=0)
    started = time.monotonic()
    writer.write(record())
    wait_for(lambda: [part for part in parts(tmp_path) if part.stat().st_size])
    assert time.monotonic() - started < 1.0
    assert finished(tmp_path) == [], "not whole yet"
    writer.close()
    assert len(finished(tmp_path)) == 1


def test_an_old_file_is_rolled_even_when_nothing_more_comes(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, "a", wall_offset_us=0, roll_s=0.05)
    writer.write(record(1))
    wait_for(lambda: finished(tmp_path))
    writer.write(record(2))
    wait_for(lambda: len(finished(tmp_path)) == 2)
    writer.close()
    assert [line["ts"] for line in lines(*finished(tmp_path))] == [1, 2]


def test_a_writer_that_got_nothing_leaves_no_file(tmp_path: Path) -> None:
    LogWriter(tmp_path, "a", wall_offset_us=0).close()
    assert list(tmp_path.iterdir()) == []


def test_a_full_buffer_drops_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logwriter, "_POLL_S", 30.0)
    writer = LogWriter(tmp_path, "a", wall_offset_us=0, buffer_max=10)
    for ts in range(25):
        writer.write(record(ts))
    assert writer.dropped == 15
    writer.close()
    assert [line["ts"] for line in lines(*finished(tmp_path))] == list(range(10))


def test_close_twice_and_write_after_it(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, "a", wall_offset_us=0)
    writer.write(record())
    writer.close()
    writer.close()
    writer.write(record())
    assert (writer.written, writer.dropped) == (1, 1)
    assert not writer._thread.is_alive()


def test_close_gives_up_at_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, release = threading.Event(), threading.Event()
    real_write = os.write

    def slow_write(fd: int, data: bytes) -> int:
        stuck.set()
        release.wait(20)
        return real_write(fd, data)

    monkeypatch.setattr(os, "write", slow_write)
    writer = LogWriter(tmp_path, "a", wall_offset_us=0)
    for ts in range(logwriter._CHUNK_RECORDS + 100):
        writer.write(record(ts))
    assert stuck.wait(10)
    started = time.monotonic()
    writer.close(timeout=0.05)
    assert time.monotonic() - started < 5
    assert writer.dropped == 100, "what was still buffered"
    release.set()
    writer._thread.join(10)
    assert writer.written == logwriter._CHUNK_RECORDS


def test_a_full_disk_is_counted_told_once_and_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_write = os.write
    full = True

    def write(fd: int, data: bytes) -> int:
        if not full:
            return real_write(fd, data)
        if os.fstat(fd).st_size < 50:
            return real_write(fd, data[:50])  # a torn line, then no more room
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", write)
    with capture_logs() as logs:
        writer = LogWriter(tmp_path, "a", wall_offset_us=0)
        writer.write(record(1))
        wait_for(lambda: writer.failed == 1)
        writer.write(record(2))
        wait_for(lambda: writer.failed == 2)
        full = False
        writer.write(record(3))
        writer.close()
    assert (writer.written, writer.failed) == (1, 2)
    assert [line["ts"] for line in lines(*finished(tmp_path))] == [3], "no torn line before it"
    assert parts(tmp_path) == []
    assert [(entry["event"], entry["directory"]) for entry in logs] == [("log_write_failed", str(tmp_path))]
    assert "No space left" in logs[0]["error"]


def test_a_record_that_cannot_be_encoded_does_not_take_others_along(tmp_path: Path) -> None:
    with capture_logs() as logs:
        writer = LogWriter(tmp_path, "a", wall_offset_us=0)
        writer.write(record(1))
        writer.write(ControlRecord(ts=2, peer="a", epoch=1, counters={"x": object()}))  # type: ignore[dict-item]
        writer.write(None)  # type: ignore[arg-type]
        writer.write(record(3))
        writer.close()
    assert [line["ts"] for line in lines(*finished(tmp_path))] == [1, 3]
    assert (writer.written, writer.failed) == (2, 2)
    assert len(logs) == 1


def test_what_a_crashed_process_left_is_renamed(tmp_path: Path) -> None:
    (tmp_path / "a-17-00000.jsonl.part").write_text('{"ts":1}\n{"ts')
    (tmp_path / "a-17-00001.jsonl.part").write_text("")
    (tmp_path / "a-1-17-00000.jsonl.part").write_text("of peer a-1")
    (tmp_path / "ab-17-00000.jsonl.part").write_text("of peer ab")
    LogWriter(tmp_path, "a", wall_offset_us=0).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a-1-17-00000.jsonl.part",
        "a-17-00000.jsonl",
        "ab-17-00000.jsonl.part",
    ]
    assert (tmp_path / "a-17-00000.jsonl").read_text() == '{"ts":1}\n{"ts'


def test_a_file_that_a_living_process_writes_is_left_alone(tmp_path: Path) -> None:
    living = tmp_path / "a-17-00000.jsonl.part"
    with living.open("w") as file:
        file.write("x")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        LogWriter(tmp_path, "a", wall_offset_us=0).close()
        assert living.exists()
    first = LogWriter(tmp_path, "b", wall_offset_us=0)
    first.write(record(1))
    wait_for(lambda: first.written == 1)
    second = LogWriter(tmp_path, "b", wall_offset_us=0)
    assert [path.name.startswith("b-") for path in parts(tmp_path)].count(True) == 1, "holds its own lock"
    first.close()
    second.close()


def test_a_directory_that_cannot_be_written_is_named_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for directory in (tmp_path / "file", tmp_path / "file" / "logs"):
        with pytest.raises(UsageError, match="log_dir") as caught:
            LogWriter(directory, "a", wall_offset_us=0)
        assert str(directory) in str(caught.value)
    with pytest.raises(UsageError, match=r"\.\./a"):
        LogWriter(tmp_path, "../a", wall_offset_us=0)


def test_writing_costs_the_caller_little(tmp_path: Path) -> None:
    """A generous limit for a loaded machine, which an encoder or a lock in `write` would still exceed."""
    writer = LogWriter(tmp_path, "a", wall_offset_us=0)
    one = record()
    best = float("inf")
    for _ in range(20):
        started = time.perf_counter()
        for _ in range(2000):
            writer.write(one)
        best = min(best, (time.perf_counter() - started) / 2000)
    writer.close()
    assert best < 0.3e-6
    assert writer.dropped == 0
