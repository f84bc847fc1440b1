"""Restricted topics in the core: nobody gets or gives anything without a right, and everybody checks."""

from pathlib import Path

import pytest
from support_nodes import Driver, links_record, run, tail, wants_record
from support_topics import TopicRealm

from anabranch.overlay.actions import Deliver, SendBundle
from anabranch.overlay.advertisements import UNKNOWN, restricted_id
from anabranch.overlay.codec import encode_subtree
from anabranch.overlay.errors import UsageError
from anabranch.overlay.headers import Record, RecordKind
from anabranch.overlay.identifiers import LinkId
from anabranch.security import grants
from anabranch.security.advertisements import Advertisement
from anabranch.security.grants import PUBLISH, SUBSCRIBE, Chain
from anabranch.security.rights import RightsTable

ID = "a" * 32 + "-" + "b" * 32


@pytest.fixture
def realm(tmp_path: Path) -> TopicRealm:
    return TopicRealm(tmp_path / "ca")


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("air/radar", None),
        ("air/topic-x", None),
        ("air/x!topic-y", None),
        (f"air/!topic-{ID}", ID),
        (f"!topic-{ID}", ID),
        (f"air/!topic-{ID}/low/1", ID),
        ("air/!topic-", UNKNOWN),
        (f"air/!topic-{ID}x", UNKNOWN),
        (f"!topic-{ID}/!topic-{ID}", UNKNOWN),
    ],
)
def test_the_name_alone_tells_that_a_topic_is_restricted(topic: str, expected: str | None) -> None:
    assert restricted_id(topic) == expected


class Scene:
    """A node `me` between a publisher `p` and a subscriber `s`, and one restricted topic of `owner`."""

    def __init__(self, realm: TopicRealm) -> None:
        self.realm = realm
        self.topic: Advertisement = realm.topic()
        realm.name("me", "p", "s")
        self.rights = realm.table("me")
        self.driver = Driver("me", rights=self.rights)
        self.links = {name: self.driver.neighbour(name) for name in ("p", "s")}
        for name, link in self.links.items():
            self.driver.records(link, links_record(name, "me"))
        self.driver.records(self.links["s"], wants_record("s", "**"))
        self.driver.take(object)
        self._sequence = 10

    def show(self, name: str, verbs: int, **options: object) -> Chain:
        """A peer shows a grant of the owner."""
        chain = self.realm.grant(self.topic, "owner", name, verbs, **options)  # type: ignore[arg-type]
        table = self.realm.table(name)
        table.hold(self.topic, chain)
        self.tell(name, table)
        return chain

    def tell(self, name: str, table: RightsTable) -> None:
        self._sequence += 1
        record = Record(name, 1, int(RecordKind.RIGHTS), self._sequence, table.shown(), b"")
        self.driver.records(self.links[name], record)

    def revoke(self, name: str) -> None:
        self.realm.now += 1.0
        sign = self.realm.signer("owner").sign_as
        self.rights.revoke(grants.revoke(self.topic.id, "owner", name, sign))
        self.driver.node.show_rights(self.driver.now)

    def passes_on(self, origin: str, topic: str, first: int = 0) -> bool:
        """Whether what a neighbour put reaches the next peer."""
        self.driver.take(object)
        way = tail(origin, deliver=False, to=[("s", encode_subtree(True, []))])
        self.driver.bundle(self.links[origin], way, [run(b"x", topic=topic, first=first)])
        return any(each.link == self.links["s"] for each in self.driver.take(SendBundle))

    def denied(self) -> int:
        return self.driver.node.counters["dropped.denied"]


@pytest.fixture
def scene(realm: TopicRealm) -> Scene:
    return Scene(realm)


def test_what_a_neighbour_puts_passes_only_with_a_right(scene: Scene) -> None:
    """Checked with `may_publish` always true."""
    name = scene.topic.synopsis
    assert scene.passes_on("p", "air/open")
    for topic in (name, f"{name}/below", f"x/!topic-{ID}", "x/!topic-"):
        assert not scene.passes_on("p", topic)
    assert scene.denied() == 4
    scene.show("p", SUBSCRIBE)
    assert not scene.passes_on("p", name)
    scene.show("p", PUBLISH)
    assert scene.passes_on("p", name, 1)
    assert scene.passes_on("p", f"{name}/below", 2)
    scene.revoke("p")
    assert not scene.passes_on("p", name, 3)


def test_a_payload_may_speak_of_a_restricted_topic(scene: Scene) -> None:
    scene.driver.take(object)
    way = tail("p", deliver=False, to=[("s", encode_subtree(True, []))])
    scene.driver.bundle(scene.links["p"], way, [run(scene.topic.synopsis.encode(), topic="news")])
    assert scene.driver.take(SendBundle)
    assert scene.denied() == 0


def test_an_interest_counts_only_with_a_right(scene: Scene) -> None:
    driver, name = scene.driver, scene.topic.synopsis
    assert driver.node.destinations(name) == ()
    assert driver.node.destinations("air/open") == ("s",)
    scene.show("s", PUBLISH)
    assert driver.node.destinations(name) == ()
    scene.show("s", SUBSCRIBE, span=(0.0, 100.0))
    assert driver.node.destinations(name) == ("s",)
    assert driver.node.destinations(name, {"height": 3}) == ("s",)
    scene.realm.now += 200.0
    driver.after(2.0)
    assert driver.node.destinations(name) == ()


def test_filters_do_not_get_round_it(scene: Scene) -> None:
    driver, name = scene.driver, scene.topic.synopsis
    driver.node.interests.set_patterns("p", frozenset({("**", "height > 2")}))
    assert driver.node.destinations("air/open", {"height": 3}) == ("p", "s")
    assert driver.node.destinations(name, {"height": 3}) == ()
    scene.show("p", SUBSCRIBE)
    assert driver.node.destinations(name, {"height": 3}) == ("p",)


def test_our_own_application_is_bound_as_well(scene: Scene) -> None:
    driver, name = scene.driver, scene.topic.synopsis
    with pytest.raises(UsageError, match="no right to publish"):
        driver.node.open_publisher(name, driver.now)
    driver.node.subscribe("**", driver.now)
    scene.show("p", PUBLISH)

    def delivered(first: int) -> bool:
        driver.take(object)
        driver.bundle(scene.links["p"], tail("p"), [run(b"x", topic=name, first=first)])
        return bool(driver.take(Deliver))

    assert not delivered(0)
    chain = scene.realm.grant(scene.topic, "owner", "me", depth=0)
    scene.rights.hold(scene.topic, chain)
    driver.node.show_rights(driver.now)
    assert delivered(1)
    driver.bundle(scene.links["s"], tail("s"), [run(b"x", topic=name)])
    assert not driver.take(Deliver)
    assert scene.denied() == 1
    outlet = driver.node.open_publisher(name, driver.now)
    scene.show("s", SUBSCRIBE)
    driver.take(object)
    driver.put(outlet, b"y")
    driver.flush()
    assert driver.take(SendBundle)
    scene.revoke("me")
    assert not delivered(2)
    before = scene.denied()
    driver.put(outlet, b"z")
    driver.flush()
    assert not driver.take(SendBundle)
    assert scene.denied() == before + 1
    driver.node.select(outlet, b"q", 1, {"level": 1}, None, driver.now)
    driver.flush()
    assert not driver.take(SendBundle)
    assert not driver.take(Deliver)
    assert scene.denied() == before + 2


def test_rights_come_and_go_with_records(scene: Scene) -> None:
    chain = scene.realm.grant(scene.topic, "owner", "p", depth=1)
    thief = scene.realm.table("p")
    thief.hold(scene.topic, chain)
    scene.driver.records(scene.links["s"], Record("s", 1, int(RecordKind.RIGHTS), 99, thief.shown(), b""))
    assert scene.denied() == 1
    assert not scene.passes_on("s", scene.topic.synopsis)
    link: LinkId = scene.links["p"]
    scene.tell("p", thief)
    assert scene.passes_on("p", scene.topic.synopsis)
    scene.driver.node.link_closed(link, scene.driver.now)
    scene.driver.after(300.0)
    assert not scene.rights.may("p", PUBLISH, scene.topic.id)


def test_in_an_open_mesh_restricted_topics_are_closed_to_all() -> None:
    driver = Driver()
    with pytest.raises(UsageError, match="restricted"):
        driver.node.open_publisher(f"air/!topic-{ID}", driver.now)
    link = driver.neighbour("b")
    driver.records(link, links_record("b", "me"), wants_record("b", "**"))
    assert driver.node.destinations(f"air/!topic-{ID}") == ()
