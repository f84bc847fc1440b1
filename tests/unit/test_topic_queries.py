"""Queries over topics: what they find, what they may not touch, and that hostile ones end."""

import contextlib
import itertools
import sqlite3
import time
from pathlib import Path

import pytest
from support_topics import TopicRealm

from anabranch.overlay.errors import StoreError
from anabranch.security.advertisements import Advertisement
from anabranch.security.synopses import Descriptors
from anabranch.transport.topics import query as queries
from anabranch.transport.topics import store as stores
from anabranch.transport.topics.query import Query, QueryError
from anabranch.transport.topics.store import FILE_NAME, TopicStore


class Shelf:
    """A store with some topics."""

    def __init__(self, directory: Path) -> None:
        self.realm = TopicRealm(directory / "ca")
        self.store = TopicStore(directory / FILE_NAME)
        self.path = directory / FILE_NAME
        self.topics: dict[str, Advertisement] = {}

    def add(self, name: str, *, creator: str = "owner", **terms: object) -> Advertisement:
        described = terms.pop("descriptors", Descriptors())
        topic = self.realm.topic(creator, name, restricted=False, descriptors=described, **terms)
        self.topics[name] = topic
        self.store.keep([(topic, [self.realm.der(creator), self.realm.der("tdn")])])
        return topic

    def find(self, text: str, by: str = "string", asker: str = "seeker", **options: float) -> set[str]:
        rows = self.store.find(Query(text, by, **options), asker, False, self.realm.now, 1.0)  # type: ignore[arg-type]
        assert not rows.error
        found = {each.hash for each in self.store.rows(rows.rows)}
        return {name for name, each in self.topics.items() if each.hash in found}


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    made = Shelf(tmp_path)
    north = {"region": "north", "range": 40, "active": True, "height": 2.5}
    made.add(
        "air/one", descriptors=Descriptors(("sensors/a",), 'Plots of 50% "radar"', north, "<r><b>X</b></r>")
    )
    made.add(
        "air/two", creator="second", descriptors=Descriptors(text="naïve", properties={"Region": "south"})
    )
    made.add("kind=radar,region=north", synopsis_type="tags", lifetime_s=10.0)
    made.add(
        "air/hidden", discoverers=("friend",), descriptors=Descriptors(properties={"code": 7}, xml="<r/>")
    )
    return made


@pytest.mark.parametrize(
    ("text", "by", "expected"),
    [
        ("", "string", {"air/one", "air/two", "kind=radar,region=north"}),
        ("air/", "string", {"air/one", "air/two"}),
        ("PLOTS", "string", {"air/one"}),
        ('50% "radar"', "string", {"air/one"}),
        ("NAÏVE", "string", {"air/two"}),
        ("ns", "string", {"air/one"}),
        ("region=", "string", {"air/one", "air/two", "kind=radar,region=north"}),
        ("*", "string", set()),
        ("hidden", "string", set()),
        (r"^air/(one|two)", "regex", {"air/one", "air/two"}),
        (r"h[i]dden", "regex", set()),
        ("region = 'north'", "sql", {"air/one", "kind=radar,region=north"}),
        ("REGION LIKE 'so%' AND height IS NULL", "sql", {"air/two"}),
        ("range BETWEEN 30 AND 50 AND active AND height > 2.4", "sql", {"air/one"}),
        ("upper(creator) = 'SECOND' -- said he", "sql", {"air/two"}),
        ("code = 7", "sql", set()),
        ("unheard_of IS NULL AND synopsis_type = 'tags'", "sql", {"kind=radar,region=north"}),
        ("//b[. = 'X']", "xpath", {"air/one"}),
        ("/r", "xpath", {"air/one"}),
    ],
)
def test_what_is_found_is_what_matches_and_may_be_found(
    shelf: Shelf, text: str, by: str, expected: set[str]
) -> None:
    assert shelf.find(text, by) == expected


def test_its_creator_and_those_it_names_find_a_hidden_topic(shelf: Shelf) -> None:
    """Checked with queries that see every row."""
    for text, by in (("hidden", "string"), ("h.dden", "regex"), ("code = 7", "sql"), ("/r", "xpath")):
        for asker in ("friend", "owner"):
            assert "air/hidden" in shelf.find(text, by, asker)
        for asker in ("seeker", "frien", "riend", "", "friend\nx", "%"):
            assert "air/hidden" not in shelf.find(text, by, asker)


def test_times_narrow_it_down(shelf: Shelf) -> None:
    now = shelf.realm.now
    assert shelf.find("", lasts_at_most=60.0) == {"kind=radar,region=north"}
    assert shelf.find("air", lasts_at_least=60.0) == {"air/one", "air/two"}
    assert shelf.find("", created_after=now + 1) == set()
    assert shelf.find("", expires_before=now + 60, created_before=now + 1) == {"kind=radar,region=north"}
    shelf.realm.now += 20
    assert shelf.find("region") == {"air/one", "air/two"}
    assert shelf.store.expire(shelf.realm.now) == 1
    assert len(shelf.store) == 3


@pytest.mark.parametrize(
    "text",
    [
        "1) UNION SELECT id FROM topics WHERE (1",
        "EXISTS (SELECT 1 FROM topics WHERE p_code = 7)",
        "id IN (SELECT rowid FROM texts)",
        "(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c)",
        "(SELECT count(*) FROM topics a, topics b, topics c)",
        "load_extension('x')",
        "randomblob(1000000000) = 1",
        "printf('%1000000000d', 1) = 1",
        "replace(synopsis, 'a', synopsis) = 1",
        "zeroblob(1e9) = 1",
        "1; DROP TABLE topics",
        "1) OR (1",
        "discoverers = ''",
        "sqlite_version() = 1",
        "synopsis LIKE '" + "%a" * 60 + "'",
        "1" + " + 1" * 240,
        "((((" * 100,
        "'",
        "\x00",
        ") --",
    ],
)
def test_a_condition_reads_topics_and_nothing_else(shelf: Shelf, text: str) -> None:
    """Checked with queries that see every row: `1) OR (1` finds what is hidden."""
    with contextlib.suppress(QueryError):
        assert "air/hidden" not in shelf.find(text, "sql")
    assert len(shelf.store) == 4
    assert shelf.find("code = 7", "sql", "friend") == {"air/hidden"}


@pytest.mark.parametrize(
    "call", ["randomblob(9)", "printf('%d', 1)", "load_extension('x')", "quote(creator)"]
)
def test_functions_are_those_that_are_known_to_be_harmless(shelf: Shelf, call: str) -> None:
    with pytest.raises(QueryError, match=f"{call.partition('(')[0]!r} may not be used"):
        shelf.find(f"{call} = 1", "sql")


def test_conditions_that_ask_about_hidden_topics_learn_nothing(shelf: Shelf) -> None:
    """Checked with an authorizer that allows everything."""
    for text in ("EXISTS (SELECT 1 FROM topics WHERE p_code = 7)", "(SELECT max(p_code) FROM topics) = 7"):
        with pytest.raises(QueryError, match=r"without SELECT|may not be used"):
            shelf.find(text, "sql")


@pytest.mark.parametrize(
    ("text", "by"),
    [
        ("(a+)+$", "regex"),
        ("(", "regex"),
        ("a{1000}{1000}", "regex"),
        ("(?P<x>.)(?P=x)", "regex"),
        ("count(//*[count(//*)])", "xpath"),
        ("//*[", "xpath"),
        ("document('file:///etc/passwd')", "xpath"),
        ("string-length(concat(/,/)) > 1", "xpath"),
        ("x" * 1001, "string"),
        ("a", "xquery"),
    ],
)
def test_hostile_searches_end_and_say_at_most_that_they_cannot_be(shelf: Shelf, text: str, by: str) -> None:
    """Checked with Python's `re` for expressions: the first goes on for hours."""
    shelf.add("big", descriptors=Descriptors(text="a" * 8000 + "!", xml="<r>" + "<a/>" * 4000 + "</r>"))
    began = time.monotonic()
    with contextlib.suppress(QueryError):
        shelf.store.find(Query(text, by), "seeker", False, shelf.realm.now, 0.5)
    assert time.monotonic() - began < 5


def test_a_condition_ends_at_its_deadline(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checked without a progress handler: it finds everything, however long that takes."""
    monkeypatch.setattr(queries, "_STEPS", 1)
    assert shelf.find("height > 0", "sql") == {"air/one"}
    for text, by in (("height > 0", "sql"), ("air", "string"), ("", "string")):
        found = shelf.store.find(Query(text, by), "seeker", False, shelf.realm.now, 0.0)
        assert (found.rows, found.is_late) == ([], True)


def test_time_in_which_others_had_the_processor_is_not_the_querys(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checked by counting with time.monotonic."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: 10.0 * next(ticks))
    found = shelf.store.find(Query("n.rth", "regex"), "seeker", False, shelf.realm.now, 1.0)
    monkeypatch.undo()
    assert (len(found.rows) > 0, found.is_late) == (True, False)


def test_a_document_is_no_way_out(shelf: Shelf, tmp_path: Path) -> None:
    """Checked without the look for a document type."""
    secret = tmp_path / "secret"
    secret.write_text("found out")
    for xml in (
        f'<!DOCTYPE r [<!ENTITY e SYSTEM "file://{secret}">]><r>&e;</r>',
        '<!DOCTYPE r [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]><r>&b;</r>',
    ):
        with pytest.raises(Exception, match="no document type"):
            shelf.add("bomb", descriptors=Descriptors(xml=xml))
    for name, xml in (("deep", "<a>" * 5000), ("broken", "<r>"), ("entity", "<r>&e;</r>")):
        shelf.add(name, descriptors=Descriptors(xml=xml))
    assert shelf.find("//*", "xpath") == {"air/one"}


def test_a_store_is_bounded_in_names_of_properties_and_says_what_it_cannot_open(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "PROPERTY_COLUMNS_MAX", len(shelf.store.columns) + 1)
    shelf.add("more", descriptors=Descriptors(properties={"alpha": 1, "beta": 1}))
    assert shelf.find("alpha = 1", "sql") == {"more"}
    assert shelf.find("beta = 1", "sql") == set()
    assert shelf.find("beta=1") == {"more"}
    broken = tmp_path / "broken" / FILE_NAME
    broken.parent.mkdir()
    broken.write_bytes(b"no database" * 100)
    with pytest.raises(StoreError, match="move it away"):
        TopicStore(broken)


def test_topics_outlive_their_store_and_a_damaged_row_is_one_topic_less(shelf: Shelf) -> None:
    shelf.store.close()
    with sqlite3.connect(shelf.path) as damage:
        damage.execute("UPDATE topics SET packed = x'00' WHERE synopsis LIKE 'air/two%'")
    damage.close()
    shelf.store = TopicStore(shelf.path)
    assert shelf.find("air") == {"air/one"}
    assert shelf.store.certificate(shelf.topics["air/one"].creator_signature[:16]) == shelf.realm.der("owner")
