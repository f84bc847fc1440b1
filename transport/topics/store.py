"""Advertisements in SQLite: what a discovery node keeps for others, and a creator of its own topics.

Commits before it says that something is kept: it outlives the process, not a loss of power.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from anabranch.overlay.errors import StoreError
from anabranch.security.advertisements import Advertisement, uuid_text
from anabranch.security.errors import TrustError
from anabranch.security.grants import Revocation
from anabranch.security.sealing import digest
from anabranch.security.synopses import Descriptors, Value, attributes_of, read_descriptors
from anabranch.transport.topics.query import COLUMNS, FoundRows, Query, evaluate, open_for_queries

FILE_NAME = "topics.db"
PROPERTY_COLUMNS_MAX = 200
"""Names of properties that queries can ask about; topics with further ones are found by all else."""
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS topics (
    id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, topic TEXT NOT NULL, {", ".join(COLUMNS)},
    discoverers TEXT NOT NULL, xml TEXT NOT NULL, packed BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS by_topic ON topics (topic);
CREATE INDEX IF NOT EXISTS by_uuid ON topics (uuid);
CREATE INDEX IF NOT EXISTS by_creator ON topics (creator);
CREATE INDEX IF NOT EXISTS by_created ON topics (created);
CREATE INDEX IF NOT EXISTS by_expires ON topics (expires);
CREATE VIRTUAL TABLE IF NOT EXISTS texts USING fts5 (body, tokenize = 'trigram');
CREATE TABLE IF NOT EXISTS certificates (fingerprint BLOB PRIMARY KEY, der BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS revocations (
    topic TEXT NOT NULL, holder TEXT NOT NULL, packed BLOB NOT NULL, PRIMARY KEY (topic, holder)
);
CREATE TABLE IF NOT EXISTS grants (topic TEXT PRIMARY KEY, packed BLOB NOT NULL);
PRAGMA user_version = 1;
"""


class TopicStore:
    """One file. `columns` are the properties that SQL can ask about."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            if self._connection.execute("PRAGMA user_version").fetchone()[0] > 1:
                raise StoreError(f"store of topics {str(path)!r}: written by a later version of anabranch")
            self._connection.executescript(SCHEMA)
            self._queries = open_for_queries(str(path))
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"store of topics {str(path)!r}: {error}; move it away to begin anew") from None
        self.columns = {
            name[2:]
            for _, name, *_ in self._connection.execute("PRAGMA table_info(topics)")
            if name.startswith("p_")
        }

    def __len__(self) -> int:
        count: int = self._connection.execute("SELECT count(*) FROM topics").fetchone()[0]
        return count

    def close(self) -> None:
        """Nothing is asked any more."""
        self._queries.close()
        self._connection.close()

    def keep(self, topics: Iterable[tuple[Advertisement, Iterable[bytes]]]) -> int:
        """Keep advertisements that were checked, with their certificates; how many were new."""
        new = 0
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for topic, certificates in topics:
                new += self._insert(topic, certificates)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise StoreError(f"store of topics {str(self.path)!r}: {error}") from None
        return new

    def expire(self, now: float) -> int:
        """Drop what has ended; how many."""
        where = "SELECT id FROM topics WHERE expires <= ?"
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(f"DELETE FROM texts WHERE rowid IN ({where})", (now,))  # noqa: S608
        gone = self._connection.execute("DELETE FROM topics WHERE expires <= ?", (now,)).rowcount
        if gone:
            self._connection.execute("DELETE FROM revocations WHERE topic NOT IN (SELECT topic FROM topics)")
        self._connection.execute("COMMIT")
        return gone

    def by_topic(self, topic: str) -> list[Advertisement]:
        """The advertisements of a topic's id; more than one is proof that its node and creator cheat."""
        return self._read("topic = ?", (topic,))

    def by_uuid(self, uuid: str) -> list[Advertisement]:
        """Every topic with this UUID."""
        return self._read("uuid = ?", (uuid,))

    def by_creator(self, creator: str) -> list[Advertisement]:
        """What somebody created."""
        return self._read("creator = ?", (creator,))

    def rows(self, rows: Iterable[int]) -> list[Advertisement]:
        """What a query found."""
        numbers = ",".join(map(str, map(int, rows)))
        return self._read(f"id IN ({numbers})", ()) if numbers else []

    def find(self, query: Query, asker: str, is_owner: bool, now: float, deadline_s: float) -> FoundRows:
        """Evaluate a query here and now; for simple ones, in small stores."""
        return evaluate(self._queries, query, asker, is_owner, now, deadline_s)

    def certificate(self, fingerprint: bytes) -> bytes | None:
        """By the first half of its fingerprint."""
        row = self._connection.execute(
            "SELECT der FROM certificates WHERE fingerprint = ?", (fingerprint,)
        ).fetchone()
        return row[0] if row else None

    def keep_revocation(self, topic: str, holder: str, revocation: Revocation, certificate: bytes) -> None:
        """Keep what a creator took back, as long as its topic."""
        packed = msgspec.msgpack.encode((certificate, revocation))
        self._connection.execute(
            "INSERT OR REPLACE INTO revocations VALUES (?, ?, ?)", (topic, holder, packed)
        )

    def revocations(self) -> list[tuple[str, bytes, Revocation]]:
        """(topic, certificate, revocation) of all that is kept."""
        rows = self._connection.execute("SELECT topic, packed FROM revocations")
        return [(topic, *_revocation_decoder.decode(packed)) for topic, packed in rows]

    def keep_grant(self, topic: str, packed: bytes) -> None:
        """Keep a right that its holder was handed."""
        self._connection.execute("INSERT OR REPLACE INTO grants VALUES (?, ?)", (topic, packed))

    def grants(self) -> list[bytes]:
        """Every right that was handed to this peer."""
        return [packed for (packed,) in self._connection.execute("SELECT packed FROM grants")]

    def _insert(self, topic: Advertisement, certificates: Iterable[bytes]) -> int:
        terms, body = topic.body.terms, topic.body
        descriptors = read_descriptors(topic.descriptors) if topic.descriptors else Descriptors()
        properties = searchable(topic, descriptors)
        names, values = self._columns(properties)
        cursor = self._connection.execute(
            f"INSERT OR IGNORE INTO topics (hash, topic, {', '.join(COLUMNS)}, discoverers, xml, packed"  # noqa: S608
            f"{''.join(f', p_{name}' for name in names)}) VALUES ({','.join('?' * (12 + len(names)))})",
            (
                topic.hash,
                topic.id,
                uuid_text(body.uuid),
                terms.creator,
                terms.institution,
                body.synopsis,
                terms.synopsis_type,
                topic.not_before,
                topic.not_after,
                "".join(f"\n{name}\n" for name in terms.discoverers),
                descriptors.xml,
                msgspec.msgpack.encode(topic.packed()),
                *values,
            ),
        )
        if not cursor.rowcount:
            return 0
        texts = [body.synopsis, terms.institution, *descriptors.paths, descriptors.text]
        texts += [f"{key}={value}" for key, value in properties.items()]
        self._connection.execute(
            "INSERT INTO texts (rowid, body) VALUES (?, ?)",
            (cursor.lastrowid, "\n".join(filter(None, texts))),
        )
        for signature in (topic.tdn_signature, topic.creator_signature):
            for der in certificates:
                if _is_named(signature, der):
                    self._connection.execute(
                        "INSERT OR IGNORE INTO certificates VALUES (?, ?)", (signature[:16], der)
                    )
        return 1

    def _columns(self, properties: dict[str, Value]) -> tuple[list[str], list[Value]]:
        names, values = [], []
        for key, value in properties.items():
            name = key.lower()
            if name not in self.columns:
                if len(self.columns) >= PROPERTY_COLUMNS_MAX:
                    continue
                self._connection.execute(f"ALTER TABLE topics ADD COLUMN p_{name}")
                self._connection.execute(f"CREATE INDEX by_p_{name} ON topics (p_{name})")
                self.columns.add(name)
            names.append(name)
            values.append(value)
        return names, values

    def _read(self, where: str, values: tuple[object, ...]) -> list[Advertisement]:
        found = []
        for (packed,) in self._connection.execute(f"SELECT packed FROM topics WHERE {where}", values):  # noqa: S608
            with suppress(TrustError, msgspec.MsgspecError):  # a damaged row is one topic less
                found.append(Advertisement.unpacked(_parts_decoder.decode(packed)))
        return found


def searchable(topic: Advertisement, descriptors: Descriptors) -> dict[str, Value]:
    """The properties of a topic, those of its synopsis included."""
    terms = topic.body.terms
    from_synopsis = attributes_of(terms.synopsis_type, topic.synopsis)
    from_synopsis.pop("topic", None)
    return {**from_synopsis, **descriptors.properties}


def _is_named(signature: bytes, der: bytes) -> bool:
    return digest(der)[:16] == signature[:16]


_parts_decoder = msgspec.msgpack.Decoder(list[bytes])
_revocation_decoder = msgspec.msgpack.Decoder(tuple[bytes, Revocation])
