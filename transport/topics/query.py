"""What can be asked about topics, and how a store finds it. Runs in a process of its own where it matters.

Every query sees only what its asker may find. Hostile ones end at a deadline, in seconds of the processor:
a busy host makes a query slow, not hostile. What they found until then counts.
"""

import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

TEXT_MAX_CHARS = 1000
FOUND_MAX = 1000
"""Topics in one answer."""
KINDS = ("string", "regex", "sql", "xpath")
COLUMNS = ("uuid", "creator", "institution", "synopsis", "synopsis_type", "created", "expires")
"""What SQL may ask about beside a topic's properties."""
_FUNCTIONS = frozenset(
    {"abs", "coalesce", "glob", "ifnull", "instr", "length", "like", "lower", "ltrim", "max", "min", "nullif"}
    | {"round", "rtrim", "substr", "trim", "typeof", "upper"}
)
_TOKEN = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|[A-Za-z_][A-Za-z0-9_]*|.", re.DOTALL)
_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_STEPS = 1000
"""SQLite's instructions between two looks at the clock."""
_ROWS = 256
"""The same for rows that are searched one by one."""


class QueryError(Exception):
    """A query that cannot be; its text is for who asked."""


class Query(msgspec.Struct, array_like=True, frozen=True):
    """What is looked for. Times are seconds since 1970; 0 means any."""

    text: str = ""
    """Empty: every topic."""
    by: str = "string"
    created_after: float = 0.0
    created_before: float = 0.0
    expires_after: float = 0.0
    expires_before: float = 0.0
    lasts_at_least: float = 0.0
    """Seconds from creation to expiry."""
    lasts_at_most: float = 0.0
    limit: int = FOUND_MAX


class FoundRows(msgspec.Struct, array_like=True):
    """Rows of the store."""

    rows: list[int]
    partial: bool = False
    """More would have been found with more time, or beyond the limit."""
    error: str = ""
    is_late: bool = False
    """Whether it was ended because it took too long, or too much memory."""


def check_query(query: Query) -> Query:
    """QueryError unless it can be asked at all."""
    if query.by not in KINDS:
        raise QueryError(f"by = {query.by!r}: one of {', '.join(KINDS)}")
    if len(query.text) > TEXT_MAX_CHARS:
        raise QueryError(f"a query of {len(query.text)} characters: {TEXT_MAX_CHARS} at most")
    if not 1 <= query.limit <= FOUND_MAX:
        raise QueryError(f"limit = {query.limit}: 1 to {FOUND_MAX}")
    return query


def open_for_queries(path: str) -> sqlite3.Connection:
    """A connection that cannot write, with small limits."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
    connection.execute("PRAGMA query_only = 1")
    connection.execute("PRAGMA cache_size = -65536")
    connection.execute("PRAGMA temp_store = 2")
    for limit, value in (
        (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 64 * 1024),
        (sqlite3.SQLITE_LIMIT_LENGTH, 1024 * 1024),
        (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 100),
        (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100),
        (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 1),
        (sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32),
    ):
        connection.setlimit(limit, value)
    return connection


def evaluate(
    connection: sqlite3.Connection, query: Query, asker: str, is_owner: bool, now: float, deadline_s: float
) -> FoundRows:
    """What `asker` finds; QueryError for what cannot be understood.

    `is_owner`: it looks into its own store, and finds everything.
    """
    check_query(query)
    until = time.thread_time() + deadline_s
    condition, values = _visible(query, asker, is_owner, now)
    connection.set_progress_handler(lambda: time.thread_time() > until, _STEPS)
    try:
        if not query.text:
            sql = f"SELECT id FROM topics WHERE {condition} ORDER BY id LIMIT :limit"  # noqa: S608
            return _rows(connection, sql, values, query.limit)
        find: Callable[..., FoundRows] = {
            "string": _by_string,
            "regex": _by_regex,
            "sql": _by_sql,
            "xpath": _by_xpath,
        }[query.by]
        return find(connection, query, condition, values, until)
    except sqlite3.OperationalError as error:
        if "interrupted" in str(error) or time.thread_time() > until:  # ended while it opened an index
            return FoundRows([], partial=True, is_late=True)
        raise QueryError(f"query {query.text[:80]!r}: {error}") from None
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise QueryError(f"query {query.text[:80]!r}: {error}") from None
    finally:
        connection.set_progress_handler(None, 0)
        connection.set_authorizer(None)


def _visible(query: Query, asker: str, is_owner: bool, now: float) -> tuple[str, dict[str, Any]]:
    """SQL for what may be found at all."""
    parts = ["expires > :now"]
    values: dict[str, Any] = {"now": now, "asker": asker, "mark": f"\n{asker}\n", "limit": query.limit + 1}
    if not is_owner:
        parts.append("(discoverers = '' OR creator = :asker OR instr(discoverers, :mark))")
    for name, sql in (
        ("created_after", "created >= :created_after"),
        ("created_before", "created <= :created_before"),
        ("expires_after", "expires >= :expires_after"),
        ("expires_before", "expires <= :expires_before"),
        ("lasts_at_least", "expires - created >= :lasts_at_least"),
        ("lasts_at_most", "expires - created <= :lasts_at_most"),
    ):
        if value := getattr(query, name):
            parts.append(sql)
            values[name] = value
    return " AND ".join(parts), values


def _rows(connection: sqlite3.Connection, sql: str, values: dict[str, Any], limit: int) -> FoundRows:
    rows = [row for (row,) in connection.execute(sql, values)]
    return FoundRows(rows[:limit], partial=len(rows) > limit)


def _by_string(
    connection: sqlite3.Connection, query: Query, condition: str, values: dict[str, Any], until: float
) -> FoundRows:
    del until
    if len(query.text) >= 3:
        values["phrase"] = '"' + query.text.replace('"', '""') + '"'
        found = "id IN (SELECT rowid FROM texts WHERE texts MATCH :phrase)"
    else:
        values["text"] = query.text.lower()
        found = "EXISTS (SELECT 1 FROM texts WHERE texts.rowid = id AND instr(lower(texts.body), :text))"
    sql = f"SELECT id FROM topics WHERE {condition} AND {found} LIMIT :limit"  # noqa: S608
    return _rows(connection, sql, values, query.limit)


def _by_sql(
    connection: sqlite3.Connection, query: Query, condition: str, values: dict[str, Any], until: float
) -> FoundRows:
    del until
    known = {name for _, name, *_ in connection.execute("PRAGMA table_info(topics)")}
    words = {
        token.lower()
        for token in _TOKEN.findall(query.text)
        if token[0] in '_"' or token[0].isalpha()
        for token in (token.strip('"'),)
    }
    shown = [f'{name} AS "{name}"' for name in COLUMNS]
    asked = [word for word in sorted(words - set(COLUMNS))[:64] if _NAME.fullmatch(word)]
    shown += [f'{f"p_{word}" if f"p_{word}" in known else "NULL"} AS "{word}"' for word in asked]
    inner = f'SELECT id AS "(id)", {", ".join(shown)} FROM topics WHERE {condition}'  # noqa: S608
    frame = f'SELECT "(id)" FROM ({inner}) WHERE (%s\n) LIMIT :limit'  # noqa: S608 - an authorizer judges it
    plain = _count_selects(connection, frame % "1", values)
    if _count_selects(connection, frame % query.text, values) != plain:
        raise QueryError(f"query {query.text[:80]!r}: one condition, without SELECT")
    return _rows(connection, frame % query.text, values, query.limit)


def _count_selects(connection: sqlite3.Connection, sql: str, values: dict[str, Any]) -> int:
    """How many SELECTs a statement has; QueryError when it touches anything but topics.

    The last authorizer stays for the statement itself, which SQLite compiles again.
    """
    selects = 0
    refused: list[str] = []

    def judge(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        nonlocal selects
        if action == sqlite3.SQLITE_SELECT:
            selects += 1
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ and first in ("topics", ""):
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION and second in _FUNCTIONS:
            return sqlite3.SQLITE_OK
        refused.append(second or first or str(action))
        return sqlite3.SQLITE_DENY

    connection.set_authorizer(judge)
    try:
        connection.execute(f"EXPLAIN {sql}", values).close()
    except sqlite3.DatabaseError:
        if refused:
            raise QueryError(f"{refused[0][:40]!r} may not be used in a query") from None
        raise
    return selects


def _texts(
    connection: sqlite3.Connection, column: str, condition: str, values: dict[str, Any]
) -> Iterator[tuple[int, str]]:
    sql = (
        f"SELECT id, {column} FROM topics JOIN texts ON texts.rowid = id "  # noqa: S608
        f"WHERE {condition} AND {column} != '' ORDER BY id"
    )
    return connection.execute(sql, values)


def _by_regex(
    connection: sqlite3.Connection, query: Query, condition: str, values: dict[str, Any], until: float
) -> FoundRows:
    try:
        import re2
    except ImportError:
        raise QueryError(
            "by = 'regex' needs google-re2 where topics are kept: pip install 'anabranch[topics]'"
        ) from None
    options = re2.Options()
    options.max_mem = 8 * 1024 * 1024
    options.log_errors = False
    try:
        pattern = re2.compile(query.text, options)
    except re2.error as error:
        raise QueryError(f"regular expression {query.text[:80]!r}: {error}") from None
    return _searched(_texts(connection, "texts.body", condition, values), pattern.search, query.limit, until)


def _by_xpath(
    connection: sqlite3.Connection, query: Query, condition: str, values: dict[str, Any], until: float
) -> FoundRows:
    try:
        from lxml import etree
    except ImportError:
        raise QueryError(
            "by = 'xpath' needs lxml where topics are kept: pip install 'anabranch[topics]'"
        ) from None
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, dtd_validation=False, huge_tree=False
    )
    try:
        path = etree.XPath(query.text, regexp=False, smart_strings=False)
    except etree.XPathError as error:
        raise QueryError(f"XPath {query.text[:80]!r}: {error}") from None

    def matches(document: str) -> bool:
        try:
            return bool(path(etree.fromstring(document.encode(), parser)))
        except etree.XMLSyntaxError:
            return False
        except etree.XPathError as error:
            raise QueryError(f"XPath {query.text[:80]!r}: {error}") from None

    return _searched(_texts(connection, "topics.xml", condition, values), matches, query.limit, until)


def _searched(
    texts: Iterator[tuple[int, str]], matches: Callable[[str], object], limit: int, until: float
) -> FoundRows:
    found: list[int] = []
    for count, (row, text) in enumerate(texts):
        if count % _ROWS == 0 and time.thread_time() > until:
            return FoundRows(found, partial=True, is_late=True)
        if matches(text):
            if len(found) == limit:
                return FoundRows(found, partial=True)
            found.append(row)
    return FoundRows(found)
