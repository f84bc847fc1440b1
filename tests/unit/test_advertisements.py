"""Advertisements: who has to stand behind one, and that no part of one fits into another."""

import itertools
from pathlib import Path

import msgspec
import pytest
from support_topics import TopicRealm

from anabranch.security import advertisements
from anabranch.security.advertisements import Advertisement, Body, Terms
from anabranch.security.errors import TrustError
from anabranch.security.synopses import Descriptors, attributes_of, complete, topic_of

ID = "0" * 31 + "f-" + "a" * 32


@pytest.fixture
def realm(tmp_path: Path) -> TopicRealm:
    return TopicRealm(tmp_path / "ca")


def holds(realm: TopicRealm, topic: Advertisement, **options: bool) -> bool:
    try:
        advertisements.check(topic, realm.witnesses, realm.now, **options)
    except TrustError:
        return False
    return True


def test_a_topic_has_a_name_of_its_own_that_both_stand_behind(realm: TopicRealm) -> None:
    topic, again = realm.topic(), realm.topic()
    assert holds(realm, topic)
    assert topic.synopsis == f"air/radar/nyc/!topic-{topic.id}"
    assert topic.synopsis != again.synopsis
    assert topic.creator == "owner"


def test_no_part_of_one_advertisement_fits_into_another(realm: TopicRealm) -> None:
    """Checked without the look at the creator's signature."""
    one = realm.topic("owner")
    others = [
        realm.topic(
            "other",
            "air/radar/rome",
            institution="Elsewhere",
            lifetime_s=7200.0,
            descriptors=Descriptors(("x",)),
        )
    ]
    others.append(realm.topic("owner", restricted=False, descriptors=Descriptors(text="others")))
    swapped = 0
    for other in others:
        for index in range(4):
            parts = one.packed()
            parts[index] = other.packed()[index]
            assert not holds(realm, Advertisement.unpacked(parts)), f"part {index}"
            assert index == 1 or not holds(realm, Advertisement.unpacked(parts), is_vouched=True)
            swapped += 1
        for field in Body.__struct_fields__:
            body = msgspec.structs.replace(one.body, **{field: getattr(other.body, field)})
            swapped += _refused(realm, one, body)
        for field in Terms.__struct_fields__:
            terms = msgspec.structs.replace(one.body.terms, **{field: getattr(other.body.terms, field)})
            swapped += _refused(realm, one, msgspec.structs.replace(one.body, terms=terms))
    assert swapped > 20


def _refused(realm: TopicRealm, one: Advertisement, body: Body) -> int:
    if body == one.body:
        return 0
    raw = msgspec.msgpack.encode(body)
    changed = Advertisement(raw, *one.packed()[1:])
    assert not holds(realm, changed)
    assert not holds(realm, changed, is_vouched=True)
    return 1


def test_neither_a_node_nor_a_creator_can_make_a_topic_alone(realm: TopicRealm) -> None:
    """Checked without the look at the node's signature."""
    topic = realm.topic()
    realm.name("thief")
    sign = realm.signer("tdn").sign_as
    terms = msgspec.structs.replace(topic.body.terms, institution="Forgers")
    by_node = advertisements.mint(terms, topic.descriptors, "tdn", sign, realm.now)
    assert not holds(realm, by_node)
    assert not holds(realm, by_node, is_vouched=True)
    body = msgspec.structs.replace(topic.body, tdn="owner")
    raw = msgspec.msgpack.encode(body)
    by_creator = Advertisement(
        raw, realm.signer("owner").sign_as(b"anabranch-advertisement-tdn-v1", raw), b"", b""
    )
    with pytest.raises(TrustError, match="not tdn"):
        advertisements.accept(
            by_creator, topic.body.terms, "owner", realm.witnesses, realm.signer("owner").sign_as, realm.now
        )


def test_a_node_that_gives_a_known_uuid_to_somebody_else_makes_another_topic(realm: TopicRealm) -> None:
    """Checked with ids that leave out the terms."""
    topic = realm.topic()
    realm.name("thief")
    holder = realm.issued["thief"][0]
    terms = msgspec.structs.replace(topic.body.terms, creator="thief", creator_certificate=holder.fingerprint)
    body = msgspec.structs.replace(topic.body, terms=terms, synopsis="")
    stolen = advertisements.topic_id(body)
    assert stolen != topic.id
    assert stolen.partition("-")[0] == topic.id.partition("-")[0]
    for synopsis, expected in ((topic.synopsis, False), (f"air/radar/nyc/!topic-{stolen}", True)):
        raw = msgspec.msgpack.encode(msgspec.structs.replace(body, synopsis=synopsis))
        signature = realm.signer("tdn").sign_as(b"anabranch-advertisement-tdn-v1", raw)
        forged = Advertisement(raw, signature, b"", topic.descriptors)
        try:
            forged = advertisements.accept(
                forged, terms, "tdn", realm.witnesses, realm.signer("thief").sign_as, realm.now
            )
        except TrustError:
            assert not expected
        else:
            assert expected
            assert forged.id == stolen


def test_the_creator_does_not_countersign_what_it_did_not_ask_for(realm: TopicRealm) -> None:
    topic = realm.topic()
    sign = realm.signer("owner").sign_as
    for change in (
        {"institution": "Others"},
        {"restricted": False},
        {"discoverers": ("spy",)},
        {"lifetime_us": 1_000_000},
    ):
        asked = msgspec.structs.replace(topic.body.terms, **change)
        with pytest.raises(TrustError, match="other terms"):
            advertisements.accept(topic, asked, "tdn", realm.witnesses, sign, realm.now)
    with pytest.raises(TrustError, match="what 'tdn' signed"):
        advertisements.accept(topic, topic.body.terms, "tdn-2", realm.witnesses, sign, realm.now)


def test_a_topic_ends_with_its_lifetime_and_outlives_the_certificates_that_made_it(realm: TopicRealm) -> None:
    topic = realm.topic(lifetime_s=3 * 86400.0)
    realm.now += 2 * 86400.0
    assert holds(realm, topic)
    realm.now += 2 * 86400.0
    assert not holds(realm, topic)


def test_a_revoked_certificate_takes_its_topics_along(realm: TopicRealm) -> None:
    for gone in ("owner", "tdn"):
        realm.issue(gone, is_tdn=gone == "tdn")
        realm.name(gone)
        topic = realm.topic()
        assert holds(realm, topic)
        trust = realm.verifier().trust
        trust.revoke(realm.revoke(gone), realm.now)
        witnesses = realm.new_witnesses(*realm.issued)
        witnesses._trust = lambda trust=trust: trust
        with pytest.raises(TrustError, match="revoked"):
            advertisements.check(topic, witnesses, realm.now)


@pytest.mark.parametrize(
    ("kind", "placeholder", "synopsis", "attributes"),
    [
        ("string", "air/nyc", f"air/nyc/topic-{ID}", {}),
        (
            "tags",
            "kind=radar,region=north",
            f"kind=radar,region=north,topic={ID}",
            {"kind": "radar", "region": "north", "topic": ID},
        ),
        ("integer", "17", "15", {}),
        (
            "properties",
            '{"range": 40.5}',
            f'{{"range": 40.5, "topic": "{ID}"}}',
            {"range": 40.5, "topic": ID},
        ),
    ],
)
def test_each_type_of_synopsis_is_made_unique(
    kind: str, placeholder: str, synopsis: str, attributes: dict[str, object]
) -> None:
    assert complete(kind, placeholder, ID, False) == synopsis
    assert attributes_of(kind, synopsis) == attributes
    topic = topic_of(kind, synopsis, ID, False)
    assert topic == (synopsis if kind == "string" else f"{kind}/topic-{ID}")


@pytest.mark.parametrize(
    ("kind", "placeholder"),
    [
        ("string", ""),
        ("string", "air//nyc"),
        ("string", "air/*"),
        ("string", "air/!topic-x"),
        ("string", "a" * 181),
        ("tags", "kind"),
        ("tags", "kind=a,kind=b"),
        ("tags", "topic=mine"),
        ("integer", "1.5"),
        ("properties", "[]"),
        ("properties", '{"a": [1]}'),
        ("properties", '{"a": NaN}'),
        ("properties", '{"topic": "mine"}'),
        ("properties", '{"uuid": "mine"}'),
        ("xml", "<a/>"),
    ],
)
def test_a_placeholder_that_is_none_is_refused(kind: str, placeholder: str) -> None:
    with pytest.raises(TrustError, match=r"synopsis|propert"):
        complete(kind, placeholder, ID, False)


def test_bytes_that_are_no_advertisement_are_refused_in_one_way(realm: TopicRealm) -> None:
    raw, *rest = realm.topic().packed()
    for broken in itertools.chain(
        (raw[:cut] for cut in range(0, len(raw), 7)), (b"\xff" * 20, b"\xdd\xff\xff\xff\xff")
    ):
        with pytest.raises(TrustError):
            advertisements.check(Advertisement(broken, *rest), realm.witnesses, realm.now)
