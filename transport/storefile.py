"""The file behind a store: tables in SQLite with a checksum per row, all looked at when it is opened.

A file that is damaged, or lacks what was once committed, is renamed, and a new one begun.
"""

import os
import sqlite3
import struct
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anabranch.overlay.errors import UsageError

_TABLES = {
    "meta": ("key TEXT PRIMARY KEY", "value INTEGER"),
    "streams": ("number INTEGER PRIMARY KEY", "topic TEXT UNIQUE", "next INTEGER", "first INTEGER"),
    "log": (
        "stream INTEGER",
        "sequence INTEGER",
        "put_at INTEGER",
        "is_value INTEGER",
        "payload BLOB",
        "PRIMARY KEY (stream, sequence)",
    ),
    "consumers": ("peer TEXT", "name TEXT", "pattern TEXT", "PRIMARY KEY (peer, name)"),
    "confirmed": (
        "peer TEXT",
        "name TEXT",
        "stream INTEGER",
        "next INTEGER",
        "PRIMARY KEY (peer, name, stream)",
    ),
    "durables": ("name TEXT PRIMARY KEY", "pattern TEXT", "forgotten INTEGER"),
    "positions": (
        "name TEXT",
        "origin TEXT",
        "publisher INTEGER",
        "incarnation INTEGER",
        "next INTEGER",
        "PRIMARY KEY (name, origin, publisher, incarnation)",
    ),
}
COLUMNS = {
    table: tuple(each.split()[0] for each in columns if not each.startswith("PRIMARY"))
    for table, columns in _TABLES.items()
}
FORMAT = 1
_WITNESS = struct.Struct(">4sQI")
_MAGIC = b"anaw"
BROKEN = (
    sqlite3.Error,
    ValueError,
    TypeError,
    OverflowError,
    MemoryError,
    KeyError,
    IndexError,
    OSError,
)


class DamagedError(Exception):
    """What is in the file cannot be what was written."""


class StoreFile:
    """An open file. `report` says what was wrong with the one found, if anything was."""

    def __init__(self, path: Path, now_us: int) -> None:
        self.path = path
        self.report = ""
        self.is_set_aside = False
        self.commits = 0
        self._witness = -1
        try:
            if not path.exists() and not _witness_of(path).exists():
                _witness_of(path).write_bytes(_testimony(0))
            self.connection = _connect(path)
            existed = self._verify()
            if not existed:
                self._create(now_us)
            else:
                self._prove_writable()
        except UsageError:
            raise
        except (DamagedError, *BROKEN) as error:
            self.close()
            if _is_locked(error):
                raise UsageError(
                    f"store {str(path)!r} is in use: one process per store; give this peer another directory"
                ) from None
            if (
                isinstance(error, OSError)
                and not isinstance(error, sqlite3.Error)
                and not path.parent.is_dir()
            ):
                raise UsageError(f"store_dir {str(path.parent)!r}: {error.strerror or error}") from None
            self.report = self._set_aside(error)
            self.is_set_aside = True
            self.connection = _connect(path)
            self._create(now_us)
        self._witness = os.open(_witness_of(path), os.O_RDWR | os.O_CREAT, 0o600)
        self.bear_witness()

    def bear_witness(self) -> None:
        """Note beside the file how many commits it has: one that lost its end is noticed by that."""
        os.pwrite(self._witness, _testimony(self.commits), 0)

    def begin(self) -> None:
        """Start a transaction that counts."""
        self.connection.execute("BEGIN IMMEDIATE")
        self.put("meta", "commits", self.commits + 1)

    def commit(self) -> None:
        """It is on the disk when this returns."""
        self.connection.execute("COMMIT")
        self.commits += 1
        self.bear_witness()

    def rollback(self) -> None:
        """Nothing of it was done."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def put(self, table: str, *values: Any) -> None:
        """Write a row, with its checksum."""
        marks = ",".join("?" * (len(values) + 1))
        self.connection.execute(
            f"INSERT OR REPLACE INTO {table} VALUES ({marks})",  # noqa: S608 - names of ours
            (*values, checksum(table, values)),
        )

    def rows(self, table: str, where: str = "1", *parameters: Any) -> list[tuple[Any, ...]]:
        """Rows without their checksums, which were checked; DamagedError where one does not hold."""
        cursor = self.connection.execute(f"SELECT * FROM {table} WHERE {where}", parameters)  # noqa: S608
        return [checked(table, row) for row in cursor]

    def close(self) -> None:
        """Let go of the file."""
        connection = getattr(self, "connection", None)
        if connection is not None:
            connection.close()
        if self._witness >= 0:
            os.close(self._witness)
            self._witness = -1

    # Inside

    def _verify(self) -> bool:
        """Whether there is something in it, all of it sound; DamagedError otherwise."""
        run = self.connection.execute
        expected = self._expected_commits()
        if run("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            if expected:
                raise DamagedError(f"it is empty, and had {expected} commits")
            return False
        verdict = [row[0] for row in run("PRAGMA integrity_check(3)")]
        if verdict != ["ok"]:
            raise DamagedError(f"integrity check: {'; '.join(map(str, verdict))}")
        for table in _TABLES:
            for row in run(f"SELECT * FROM {table}"):  # noqa: S608 - names of ours
                checked(table, row)
        meta = dict(self.rows("meta"))
        if meta.get("format") != FORMAT:
            raise DamagedError(f"format {meta.get('format')!r}, expected {FORMAT}")
        self.commits = meta["commits"]
        if expected is None:
            self.report = (
                f"the witness of store {str(self.path)!r} is damaged or missing: whether the store lost its "
                "end cannot be told; what it holds is sound and is used"
            )
        elif self.commits < expected:
            raise DamagedError(f"it has {self.commits} commits, and had {expected}: its end is missing")
        for number, topic, end, first in self.rows("streams"):
            found = run(
                "SELECT count(*), min(sequence), max(sequence) FROM log WHERE stream = ?", (number,)
            ).fetchone()
            whole = (end - first, first, end - 1) if end > first else (0, None, None)
            if found != whole:
                raise DamagedError(f"of {topic!r} it should hold {first} to {end}, and has {found[0]} rows")
        return True

    def _expected_commits(self) -> int | None:
        """What the witness says; None if it says nothing that can be believed."""
        try:
            data = _witness_of(self.path).read_bytes()
        except FileNotFoundError:
            return None
        if len(data) != _WITNESS.size:
            return None
        magic, commits, check = _WITNESS.unpack(data)
        return int(commits) if magic == _MAGIC and check == zlib.crc32(data[:-4]) else None

    def _create(self, now_us: int) -> None:
        run = self.connection.execute
        run("BEGIN IMMEDIATE")
        for table, columns in _TABLES.items():
            keyed = [each for each in columns if each.startswith("PRIMARY")]
            plain = [each for each in columns if not each.startswith("PRIMARY")]
            run(f"CREATE TABLE {table} ({', '.join([*plain, 'crc INTEGER', *keyed])}) WITHOUT ROWID")
        self.put("meta", "format", FORMAT)
        self.put("meta", "incarnation", now_us)
        self.put("meta", "commits", 1)
        run("COMMIT")
        self.commits = 1

    def _prove_writable(self) -> None:
        self.begin()
        self.connection.execute("COMMIT")
        self.commits += 1

    def _set_aside(self, error: BaseException) -> str:
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        number, moved = 0, []
        while True:
            suffix = f".damaged-{stamp}" + (f"-{number}" if number else "")
            if not any(Path(f"{each}{suffix}").exists() for each in _all_files(self.path)):
                break
            number += 1
        for each in _all_files(self.path):
            if each.exists():
                each.rename(f"{each}{suffix}")
                moved.append(f"{each}{suffix}")
        return (
            f"store {str(self.path)!r} is damaged ({error}): set aside as {', '.join(moved)}, and a new one "
            "begun; messages and positions in it are not used"
        )


def _testimony(commits: int) -> bytes:
    return _WITNESS.pack(_MAGIC, commits, zlib.crc32(struct.pack(">4sQ", _MAGIC, commits)))


def checksum(table: str, values: Sequence[Any]) -> int:
    """Over the whole row, its table included."""
    crc = zlib.crc32(table.encode())
    for value in values:
        data = value if isinstance(value, bytes) else repr(value).encode()
        crc = zlib.crc32(data, zlib.crc32(b"%d;" % len(data), crc))
    return crc


def checked(table: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The row without its checksum, if that holds."""
    if len(row) != len(COLUMNS[table]) + 1 or checksum(table, row[:-1]) != row[-1]:
        raise DamagedError(f"a row of {table!r} is not what was written: {str(row[:2])[:80]}")
    return row[:-1]


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0.5)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise DamagedError(f"journal mode {mode!r}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cell_size_check = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _is_locked(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


def _witness_of(path: Path) -> Path:
    return Path(f"{path}.witness")


def _all_files(path: Path) -> list[Path]:
    return [path, Path(f"{path}-wal"), Path(f"{path}-journal"), Path(f"{path}-shm"), _witness_of(path)]
