"""Nodes of a secured mesh: who is let in, what is believed, and how trust ends."""

from pathlib import Path

import msgspec
import pytest
from support_nodes import Driver
from support_trust import Realm

from anabranch.overlay.actions import CloseLink, SendControl
from anabranch.overlay.codec import decode_control, encode_body, hello_part, signed_part
from anabranch.overlay.headers import Digest, Hello, Kind, Record, RecordKind, Records
from anabranch.overlay.identifiers import LinkId

KEY = b"k" * 32
OTHER_KEY = b"o" * 32


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    return Realm(tmp_path / "ca")


def member(realm: Realm, name: str = "me", **options: object) -> Driver:
    signer, verifier = realm.signer(name), realm.verifier(name)
    verifier.learn(name, realm.der(name))
    return Driver(name, signer=signer, verifier=verifier, **options)  # type: ignore[arg-type]


def hello_of(
    realm: Realm, name: str, *, binding: bytes = KEY, dialled: bool = True, **fields: object
) -> Hello:
    signer = realm.signer(name)
    hello = Hello(name, 1, "peer", 7, signer.credential)
    hello.proof = signer.sign(hello_part(hello, binding, dialled))
    return msgspec.structs.replace(hello, **fields)


def comes(driver: Driver, hello: Hello, binding: bytes = KEY) -> LinkId:
    """Somebody dials us and says this."""
    driver._links += 1
    link = LinkId(driver._links)
    driver.node.link_opened(link, driver.now, None, binding)
    driver._settle()
    driver.control(link, Kind.HELLO, hello)
    return link


def links(driver: Driver) -> set[str]:
    return set(driver.node.links.by_peer)


def test_a_member_is_let_in_and_gets_proof_in_return(realm: Realm) -> None:
    driver = member(realm)
    driver.take(object)
    comes(driver, hello_of(realm, "b"))
    assert links(driver) == {"b"}
    frames = [each.frame for each in driver.take(SendControl) if each.frame[1] == Kind.HELLO]
    answer = decode_control(Kind.HELLO, frames[0])
    assert isinstance(answer, Hello)
    judge = realm.verifier()
    assert judge.learn("me", answer.credential)
    assert judge.verify("me", hello_part(answer, KEY, False), answer.proof)
    assert not judge.verify("me", hello_part(answer, OTHER_KEY, False), answer.proof)


def test_who_dials_demands_proof_as_well(realm: Realm) -> None:
    driver = member(realm)
    for hello, expected in (
        (hello_of(realm, "b", dialled=True), set()),  # its own words, reflected
        (hello_of(realm, "b", dialled=False, binding=OTHER_KEY), set()),
        (hello_of(realm, "b", dialled=False), {"b"}),
    ):
        driver._links += 1
        link = LinkId(driver._links)
        driver.node.link_opened(link, driver.now, "tcp://b:1", KEY)
        driver._settle()
        driver.control(link, Kind.HELLO, hello)
        assert links(driver) == expected


@pytest.mark.parametrize("field", ["peer", "epoch", "role", "instance", "credential", "proof", "binding"])
def test_each_part_of_a_hello_is_bound(field: str, realm: Realm) -> None:
    """Checked with an empty binding in what is signed and checked."""
    realm.issue("c")
    hello = hello_of(realm, "b")
    changes: dict[str, object] = {
        "peer": "c", "epoch": 2, "role": "client", "instance": 8, "credential": realm.der("c"), "proof": b"",
    }  # fmt: skip
    driver = member(realm)
    if field == "binding":
        link = comes(driver, hello, OTHER_KEY)
    else:
        link = comes(driver, msgspec.structs.replace(hello, **{field: changes[field]}))
    assert not links(driver)
    assert driver.drops() == {"untrusted": 1}
    assert [each.link for each in driver.take(CloseLink)] == [link]


def test_strangers_of_every_kind_stay_outside(realm: Realm, tmp_path: Path) -> None:
    """Checked with hellos that nobody looks at (`_is_proven`)."""
    other = Realm(tmp_path / "other")
    realm.signer("late", 1)
    realm.signer("gone")
    driver = member(realm)
    driver.node._parts.verifier.revoke(realm.revoke("gone"))
    realm.now += 3700
    for hello in (
        Hello("b", 1, "peer", 7),
        hello_of(other, "b"),
        hello_of(realm, "late"),
        hello_of(realm, "gone"),
    ):
        comes(driver, hello)
    assert not links(driver)
    assert driver.drops() == {"untrusted": 4}


def test_an_open_node_and_a_secured_one_do_not_mix(realm: Realm) -> None:
    open_node = Driver()
    comes(open_node, hello_of(realm, "b"))
    assert not links(open_node)
    secured = member(realm)
    comes(secured, Hello("b", 1, "peer", 7))
    assert not links(secured)


def signed(
    realm: Realm, origin: str, kind: RecordKind, body: object, by: str = "", **fields: object
) -> Record:
    packed = body if isinstance(body, bytes) else encode_body(body)
    record = Record(origin, 1, int(kind), 1, packed, b"")
    record = msgspec.structs.replace(record, **fields)
    record.signature = realm.signer(by or origin).sign(signed_part(record))
    return record


def test_records_are_believed_once_their_origin_is_known_and_only_from_it(realm: Realm) -> None:
    """Checked without the look at signatures in `_refusal`."""
    driver = member(realm)
    link = comes(driver, hello_of(realm, "b"))
    realm.issue("far")
    wants = signed(realm, "far", RecordKind.INTERESTS, ["a"])
    driver.records(link, wants)
    assert not driver.node.interests.find("a"), "its certificate is not known yet"
    driver.records(link, signed(realm, "far", RecordKind.CREDENTIAL, realm.der("far")), wants)
    assert driver.node.interests.find("a") == ("far",)
    forged = signed(realm, "far", RecordKind.INTERESTS, ["b"], by="b", sequence=2)
    stolen = signed(realm, "other", RecordKind.CREDENTIAL, realm.der("far"), by="far")
    driver.records(link, forged, stolen, msgspec.structs.replace(wants, sequence=3))
    assert driver.node.interests.find("a") == ("far",)
    assert driver.drops() == {"signature": 3, "untrusted": 1}


def test_credentials_go_first_to_a_new_neighbour(realm: Realm) -> None:
    driver = member(realm)
    link = comes(driver, hello_of(realm, "b"))
    for name in ("far", "near"):
        realm.issue(name)
        driver.records(
            link,
            signed(realm, name, RecordKind.CREDENTIAL, realm.der(name)),
            signed(realm, name, RecordKind.INTERESTS, ["a"], sequence=2),
        )
    driver.take(object)
    newcomer = comes(driver, hello_of(realm, "c"))
    driver.take(object)
    driver.control(newcomer, Kind.DIGEST, Digest([], True))
    sent = [
        decode_control(Kind.RECORDS, each.frame) for each in driver.take(SendControl) if each.frame[1] == 5
    ]
    kinds = [record.kind for part in sent if isinstance(part, Records) for record in part.records]
    ends = len([kind for kind in kinds if kind == RecordKind.CREDENTIAL])
    assert ends >= 3
    assert set(kinds[:ends]) == {RecordKind.CREDENTIAL}


def test_an_expired_neighbour_is_parted_with_and_all_it_said_forgotten(realm: Realm) -> None:
    realm.signer("brief", 1)
    driver = member(realm)
    link = comes(driver, hello_of(realm, "brief"))
    driver.records(
        link,
        signed(realm, "brief", RecordKind.CREDENTIAL, realm.der("brief")),
        signed(realm, "brief", RecordKind.INTERESTS, ["a"]),
    )
    assert driver.node.interests.find("a") == ("brief",)
    realm.now += 3601
    driver.after(1.1, answering=[link])
    assert not links(driver)
    assert not driver.node.interests.find("a")
    assert driver.node.counters["evicted"] == 1


def test_a_revocation_list_spreads_and_ends_live_links(realm: Realm) -> None:
    driver = member(realm)
    traitor = comes(driver, hello_of(realm, "b"))
    friend = comes(driver, hello_of(realm, "c"))
    driver.records(traitor, signed(realm, "b", RecordKind.CREDENTIAL, realm.der("b")))
    driver.records(friend, signed(realm, "c", RecordKind.CREDENTIAL, realm.der("c")))
    driver.take(object)
    revocations = realm.revoke("b")
    driver.records(friend, signed(realm, "c", RecordKind.REVOCATIONS, [revocations]))
    driver.after(0.05, answering=[traitor, friend])
    assert links(driver) == {"c"}
    assert driver.node.book.get("b", RecordKind.CREDENTIAL) is None
    own = driver.node.book.get("me", RecordKind.REVOCATIONS)
    assert own is not None, "we tell it in our own name too, whoever we had it from may leave"
    comes(driver, hello_of(realm, "b"))
    assert links(driver) == {"c"}


def test_nobody_can_make_us_move_our_epoch_with_a_forged_record(realm: Realm) -> None:
    driver = member(realm)
    link = comes(driver, hello_of(realm, "b"))
    before = driver.node.identity.epoch
    driver.after(2.0, answering=[link])
    driver.records(link, signed(realm, "me", RecordKind.INTERESTS, ["a"], by="b", epoch=before + 1000))
    assert driver.node.identity.epoch == before
    driver.records(link, signed(realm, "me", RecordKind.INTERESTS, ["a"], epoch=before + 1000))
    assert driver.node.identity.epoch == before + 1001
