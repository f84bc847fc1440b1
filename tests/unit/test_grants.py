"""Rights to restricted topics: chains that only narrow, are their holders alone, and end."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support_topics import TopicRealm

from anabranch.security import grants
from anabranch.security.errors import TrustError
from anabranch.security.grants import PUBLISH, SUBSCRIBE, Chain, Grant, GrantBody
from anabranch.security.rights import Shown

BOTH = PUBLISH | SUBSCRIBE
NAMES = ("h0", "h1", "h2", "h3")


@pytest.fixture
def realm(tmp_path: Path) -> TopicRealm:
    return TopicRealm(tmp_path / "ca")


link_terms = st.tuples(st.integers(1, 3), st.integers(0, 5), st.integers(1, 10), st.integers(0, 3))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(links=st.lists(link_terms, min_size=1, max_size=5), at=st.integers(0, 12))
def test_a_chain_is_worth_what_all_its_links_have_in_common_or_nothing(
    realm: TopicRealm, links: list[tuple[int, int, int, int]], at: int
) -> None:
    """Checked without the comparison with the link before."""
    if not hasattr(realm, "shared"):
        realm.shared = realm.topic()  # type: ignore[attr-defined]
    topic = realm.shared  # type: ignore[attr-defined]
    chain: Chain = ()
    issuer = "owner"
    allowed = {(verb, t) for verb in (PUBLISH, SUBSCRIBE) for t in range(20)}
    depth, is_sound = 10, len(links) <= grants.DEPTH_MAX
    for (verbs, begin, length, deeper), holder in zip(links, (*NAMES, "h4"), strict=False):
        span = (begin * 60.0, (begin + length) * 60.0)
        chain = realm.grant(topic, issuer, holder, verbs, span=span, depth=deeper, parent=chain)
        granted = {(v, t) for v in (PUBLISH, SUBSCRIBE) if v & verbs for t in range(begin, begin + length)}
        is_sound &= granted <= allowed and deeper < depth
        allowed &= granted
        issuer, depth = holder, deeper
    try:
        right = grants.check(chain, topic, realm.witnesses, realm.now)
    except TrustError:
        assert not is_sound
        return
    assert is_sound
    for verb in (PUBLISH, SUBSCRIBE):
        moment = realm.now + at * 60.0 + 30.0
        in_time = (verb, at) in allowed
        early = any(v == verb for v, _ in allowed) and moment < right.not_before
        assert right.allows(verb, moment) == (in_time or (early and moment >= right.not_before - 300.0))


@pytest.mark.parametrize(
    ("verbs", "span", "depth"),
    [
        (BOTH, (0.0, 1000.0), 0),
        (PUBLISH, (0.0, 1000.0), 0),
        (SUBSCRIBE, (0.0, 1001.0), 0),
        (SUBSCRIBE, (-1.0, 1000.0), 0),
        (SUBSCRIBE, (0.0, 1000.0), 1),
        (SUBSCRIBE, (0.0, 1000.0), 3),
    ],
)
def test_a_link_that_is_wider_than_the_one_before_is_refused(
    realm: TopicRealm, verbs: int, span: tuple[float, float], depth: int
) -> None:
    topic = realm.topic()
    first = realm.grant(topic, "owner", "a", SUBSCRIBE, depth=1)
    sound = realm.grant(topic, "a", "b", SUBSCRIBE, parent=first)
    assert grants.check(sound, topic, realm.witnesses, realm.now).verbs == SUBSCRIBE
    wider = realm.grant(topic, "a", "b", verbs, span=span, depth=depth, parent=first)
    with pytest.raises(TrustError, match="wider"):
        grants.check(wider, topic, realm.witnesses, realm.now)


def test_a_link_belongs_to_the_very_grant_that_it_hands_on(realm: TopicRealm) -> None:
    """Checked without the look at `parent`."""
    topic = realm.topic()
    short = realm.grant(topic, "owner", "a", span=(0.0, 500.0), depth=1)
    long = realm.grant(topic, "owner", "a", span=(0.0, 1000.0), depth=1)
    link = realm.grant(topic, "a", "b", span=(0.0, 400.0), parent=short)[-1]
    assert grants.check((*short, link), topic, realm.witnesses, realm.now).holder == "b"
    with pytest.raises(TrustError, match="has to grant"):
        grants.check((*long, link), topic, realm.witnesses, realm.now)


def test_no_part_of_one_chain_fits_into_another(realm: TopicRealm) -> None:
    """Checked without the look at signatures."""
    topic, other_topic = realm.topic(), realm.topic("owner", "air/radar/rome")
    one = realm.grant(topic, "owner", "a", depth=2)
    one = realm.grant(topic, "a", "b", SUBSCRIBE, span=(1.0, 900.0), depth=1, parent=one)
    other = realm.grant(other_topic, "owner", "c", depth=3, span=(2.0, 2000.0))
    other = realm.grant(other_topic, "c", "d", PUBLISH, span=(3.0, 1900.0), depth=2, parent=other)
    assert grants.check(one, topic, realm.witnesses, realm.now).holder == "b"
    assert grants.check(other, other_topic, realm.witnesses, realm.now).holder == "d"
    refused = 0
    for at, field in ((at, field) for at in (0, 1) for field in GrantBody.__struct_fields__):
        mine, foreign = grants.read_grant(one[at]), grants.read_grant(other[at])
        if getattr(mine, field) == getattr(foreign, field):
            continue
        body = msgspec.structs.replace(mine, **{field: getattr(foreign, field)})
        forged = list(one)
        forged[at] = Grant(msgspec.msgpack.encode(body), one[at].signature)
        refused += _is_refused(realm, tuple(forged), topic)
    for at in (0, 1):
        refused += _is_refused(realm, (*one[:at], other[at], *one[at + 1 :]), topic)
        refused += _is_refused(
            realm, (*one[:at], Grant(one[at].raw, other[at].signature), *one[at + 1 :]), topic
        )
    refused += _is_refused(realm, one[1:], topic) + _is_refused(realm, one[::-1], topic)
    refused += _is_refused(realm, one, other_topic) + _is_refused(realm, (), topic)
    assert refused >= 18


def _is_refused(realm: TopicRealm, chain: Chain, topic: object) -> int:
    with pytest.raises(TrustError):
        grants.check(chain, topic, realm.witnesses, realm.now)  # type: ignore[arg-type]
    return 1


def test_a_right_is_its_holders_alone_and_ends_with_time_and_with_revocation(realm: TopicRealm) -> None:
    """Checked without the look at whose grant is shown."""
    topic = realm.topic()
    chain = realm.grant(topic, "owner", "a", span=(0.0, 1000.0), depth=1)
    further = realm.grant(topic, "a", "b", SUBSCRIBE, span=(0.0, 500.0), parent=chain)
    tables = {name: realm.table(name) for name in ("owner", "a", "b", "thief", "watcher")}
    tables["owner"].hold(topic, ())
    tables["a"].hold(topic, chain)
    tables["b"].hold(topic, further)
    with pytest.raises(TrustError, match="shows a grant of 'a'"):
        tables["thief"].hold(topic, chain)
    watcher = tables["watcher"]
    for name in ("owner", "a", "b"):
        assert watcher.take(name, tables[name].shown())
    assert not watcher.take("thief", tables["a"].shown())
    rights = {(name, verb) for name in tables for verb in (1, 2) if watcher.may(name, verb, topic.id)}
    assert rights == {("owner", 1), ("owner", 2), ("a", 1), ("a", 2), ("b", 2)}
    assert not watcher.may("a", PUBLISH, "another-topic")

    realm.now += 600.0
    assert not watcher.may("b", SUBSCRIBE, topic.id)
    assert watcher.may("a", SUBSCRIBE, topic.id)

    realm.now -= 590.0
    version = watcher.version
    word = grants.revoke(topic.id, "owner", "a", realm.signer("owner").sign_as)
    assert watcher.revoke(word)
    assert not watcher.revoke(word)
    assert watcher.version > version
    assert not watcher.may("a", PUBLISH, topic.id)
    assert not watcher.may("b", SUBSCRIBE, topic.id)
    assert watcher.may("owner", PUBLISH, topic.id)
    realm.now += 1.0
    again = realm.grant(topic, "owner", "a", span=(0.0, 100.0))
    tables["a"].hold(topic, again)
    assert watcher.take("a", tables["a"].shown())
    assert watcher.may("a", PUBLISH, topic.id)


def test_revocations_are_the_creators_word_and_are_passed_on_by_anybody(realm: TopicRealm) -> None:
    topic = realm.topic()
    chain = realm.grant(topic, "owner", "a", depth=1)
    holder, other, late = realm.table("a"), realm.table("b"), realm.table("late")
    holder.hold(topic, chain)
    other.introduce(topic)
    for issuer in ("a", "thief"):
        realm.name(issuer)
        word = grants.revoke(topic.id, issuer, "owner", realm.signer(issuer).sign_as)
        with pytest.raises(TrustError, match="by another"):
            other.revoke(word)
    realm.now += 1.0
    other.revoke(grants.revoke(topic.id, "owner", "a", realm.signer("owner").sign_as))
    assert late.take("a", holder.shown())
    assert late.may("a", SUBSCRIBE, topic.id)
    assert late.take("b", other.shown())
    assert not late.may("a", SUBSCRIBE, topic.id)


def test_rights_end_with_a_certificate_in_the_chain(realm: TopicRealm) -> None:
    topic = realm.topic()
    chain = realm.grant(topic, "owner", "a", depth=1)
    chain = realm.grant(topic, "a", "b", parent=chain)
    holder = realm.table("b")
    holder.hold(topic, chain)
    trust = realm.verifier().trust
    watcher = realm.table("watcher")
    watcher.witnesses._trust = lambda: trust
    shown = holder.shown()
    assert watcher.take("b", shown)
    trust.revoke(realm.revoke("a"), realm.now)
    watcher.distrust()
    assert not watcher.may("b", SUBSCRIBE, topic.id)
    assert not watcher.take("b", shown)


def test_what_is_no_record_of_rights_is_refused_and_said(realm: TopicRealm) -> None:
    said: list[str] = []
    table = realm.table("a")
    table._on_refusal = lambda who, why: said.append(f"{who}: {why}")
    topic = realm.topic()
    holder = realm.table("b")
    holder.hold(topic, realm.grant(topic, "owner", "b"))
    sound = msgspec.msgpack.decode(holder.shown(), type=Shown)
    for broken in (
        b"",
        b"\xdd\xff\xff\xff\xff",
        msgspec.msgpack.encode(Shown([], sound.topics, sound.chains, [])),
        msgspec.msgpack.encode(Shown(sound.certificates, [], sound.chains, [])),
        msgspec.msgpack.encode(Shown(sound.certificates, sound.topics, [[]], [])),
        msgspec.msgpack.encode(Shown(sound.certificates, sound.topics, sound.chains * 2000, [])),
    ):
        assert not table.take("b", broken)
        assert not table.may("b", SUBSCRIBE, topic.id)
    assert len(said) == 6


def test_tables_are_bounded(realm: TopicRealm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.security.rights.TOPICS_MAX", 3)
    monkeypatch.setattr("anabranch.security.rights.REVOKED_MAX", 2)
    table = realm.table("owner")
    topics = [realm.topic("owner", f"t/{number}") for number in range(5)]
    table.hold(topics[0], ())
    for topic in topics[1:]:
        table.introduce(topic)
    assert len(table.known) == 3
    assert topics[0].id in table.known
    sign = realm.signer("owner").sign_as
    for name in ("x", "y"):
        table.revoke(grants.revoke(topics[0].id, "owner", name, sign))
    with pytest.raises(TrustError, match="advertise a new topic"):
        table.revoke(grants.revoke(topics[0].id, "owner", "z", sign))


def test_what_a_peer_shows_is_bounded_its_own_rights_first(
    realm: TopicRealm, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = realm.table("owner")
    topic = realm.topic()
    table.hold(topic, ())
    sign = realm.signer("owner").sign_as
    for number in range(5):
        realm.now += 1.0
        table.revoke(grants.revoke(topic.id, "owner", f"h{number}", sign))
    whole = msgspec.msgpack.decode(table.shown(), type=Shown)
    assert len(whole.revocations) == 5
    monkeypatch.setattr("anabranch.security.rights.SHOWN_MAX_BYTES", 1700)
    some = msgspec.msgpack.decode(table.shown(), type=Shown)
    assert 0 < len(some.revocations) < 5
    assert len(some.topics) == 1
    latest = {grants.read_revocation(each).holder for each in some.revocations}
    assert latest == {f"h{4 - number}" for number in range(len(latest))}
    monkeypatch.setattr("anabranch.security.rights.OWN_MAX_BYTES", 2500)
    table.hold(realm.topic("owner", "second"), ())
    with pytest.raises(TrustError, match="use several peers"):
        table.hold(realm.topic("owner", "third"), ())
    assert len(table.own) == 2
