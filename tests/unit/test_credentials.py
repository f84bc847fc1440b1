"""Signatures with certificates: what is believed, and everything that must not be."""

from itertools import pairwise
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st
from support_trust import T0, Realm

from anabranch.security.credentials import TAGS_MAX, CertificateVerifier
from anabranch.security.errors import TrustError
from anabranch.security.pairing import Pairing
from anabranch.security.signing import FORGED, UNKNOWN
from anabranch.security.trust import SKEW_S


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Realm:
    realm = Realm(tmp_path_factory.mktemp("realm") / "ca")
    realm.issue("a")
    realm.issue("b")
    return realm


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    return Realm(tmp_path / "ca")


def knowing(realm: Realm, *names: str) -> CertificateVerifier:
    verifier = realm.verifier()
    for name in names:
        assert verifier.learn(name, realm.der(name))
    return verifier


def test_what_a_peer_signed_is_believed_and_no_one_else_can_sign_for_it(shared: Realm) -> None:
    verifier = knowing(shared, "a", "b")
    signature = shared.signer("a").sign(b"news")
    assert verifier.verify("a", b"news", signature)
    assert not verifier.verify("b", b"news", signature)
    assert not verifier.verify("a", b"other", signature)
    assert not verifier.verify("c", b"news", signature)
    assert not verifier.verify("a", b"news", b"")


def realm_of(realm: Realm, *names: str) -> Realm:
    for name in names:
        if name not in realm.issued:
            realm.issue(name)
    return realm


def meeting(realm: Realm, me: str, *names: str) -> CertificateVerifier:
    """The verifier of a peer that knows certificates and exchange keys of these, as they know its key."""
    verifier = realm_of(realm, me, *names).verifier(me)
    for name in (me, *names):
        assert verifier.learn(name, realm.der(name))
        assert verifier.know_exchange(name, realm.pairing(name).public)
        realm.pairing(name).know(me, realm.pairing(me).public)
    return verifier


STAMP = b"stamp"
MANY = [f"peer-{number}" for number in range(TAGS_MAX)]


def sealed(realm: Realm, body: list[bytes], receivers: list[str], **options: bool) -> bytes:
    """What `a` seals for these."""
    for name in receivers:
        realm.pairing("a").know(name, realm.pairing(name).public)
    return realm.signer("a").seal(STAMP, body, receivers, **options)


@pytest.mark.parametrize("others", [[], MANY], ids=["tags", "signature"])
def test_a_seal_holds_for_each_of_its_receivers_and_for_nobody_else(shared: Realm, others: list[str]) -> None:
    body = [b"first", b"second"]
    seal = sealed(shared, body, ["b", "c", *others])
    assert meeting(shared, "b", "a").verify_seal("a", STAMP, body, seal) > 0
    assert meeting(shared, "c", "a").verify_seal("a", STAMP, body, seal) > 0
    assert meeting(shared, "d", "a").verify_seal("a", STAMP, body, seal) == FORGED


@pytest.mark.parametrize("others", [[], MANY], ids=["tags", "signature"])
def test_one_changed_byte_anywhere_and_it_is_refused(shared: Realm, others: list[str]) -> None:
    """Checked with tags that are not looked at, and with signatures that leave out the stamp."""
    verifier = meeting(shared, "b", "a")
    seal = sealed(shared, [b"first frame", b"2nd"], ["b", *others])
    given = [STAMP, b"first frame", b"2nd", seal]
    assert verifier.verify_seal("a", given[0], given[1:3], seal) > 0
    for number, part in enumerate(given):
        for at in range(len(part)):
            changed = list(given)
            changed[number] = part[:at] + bytes([part[at] ^ 1]) + part[at + 1 :]
            assert verifier.verify_seal("a", changed[0], changed[1:3], changed[3]) <= 0, (number, at)
    for length in range(len(seal)):
        assert verifier.verify_seal("a", STAMP, given[1:3], seal[:length]) <= 0


def test_a_receiver_cannot_seal_in_the_origins_name(shared: Realm) -> None:
    """b knows the keys that it has with a and with c: neither makes a bundle of a's that c believes.

    Checked with one key for all.
    """
    at_c = meeting(shared, "c", "a", "b")
    meeting(shared, "b", "a", "c")
    forged = shared.signer("b").seal(STAMP, [b"x"], ["c"])
    assert at_c.verify_seal("b", STAMP, [b"x"], forged) > 0
    assert at_c.verify_seal("a", STAMP, [b"x"], forged) <= 0
    reflected = sealed(shared, [b"x"], ["b"])
    assert at_c.verify_seal("a", STAMP, [b"x"], reflected) == FORGED
    assert meeting(shared, "a", "b").verify_seal("b", STAMP, [b"x"], reflected) <= 0, "back to its maker"


def test_who_only_passes_it_on_can_check_what_is_for_everybody(shared: Realm) -> None:
    relay = meeting(shared, "d", "a")
    seal = sealed(shared, [b"x"], ["b"], for_everybody=True)
    assert relay.verify_seal("a", STAMP, [b"x"], seal, for_us=False) > 0
    assert relay.verify_seal("a", STAMP, [b"y"], seal, for_us=False) == FORGED
    assert relay.verify_seal("a", STAMP, [b"x"], seal) == FORGED, "not for us"
    assert relay.verify_seal("a", STAMP, [b"x"], sealed(shared, [b"x"], ["b"]), for_us=False) == FORGED


@given(st.data())
def test_frames_cannot_be_cut_otherwise(shared: Realm, data: st.DataObject) -> None:
    verifier = meeting(shared, "b", "a")
    text = data.draw(st.binary(max_size=12))
    cuts = st.lists(st.integers(0, len(text)), max_size=3).map(sorted)
    ways = [[text[begin:end] for begin, end in pairwise([0, *data.draw(cuts), len(text)])] for _ in range(2)]
    seal = sealed(shared, ways[0], ["b"])
    assert (verifier.verify_seal("a", STAMP, ways[1], seal) > 0) is (ways[0] == ways[1])


def test_a_signature_made_for_one_purpose_serves_no_other(shared: Realm) -> None:
    verifier, signer = meeting(shared, "b", "a"), shared.signer("a")
    record = signer.sign(b"n")
    assert verifier.verify_seal("a", STAMP, [], b"\2" + bytes(12) + record) <= 0
    voucher = signer.vouch("b", b"n")
    assert verifier.verify_vouched("a", b"n", voucher)
    assert not verifier.verify_vouched("a", b"m", voucher)
    assert not verifier.verify_vouched("b", b"n", voucher)
    assert not verifier.verify_vouched("a", b"n", b"")
    assert not meeting(shared, "c", "a").verify_vouched("a", b"n", voucher)
    assert signer.vouch("stranger", b"n") == b""


def test_a_restarted_receiver_takes_nothing_that_was_sealed_for_its_former_self(realm: Realm) -> None:
    seals = [sealed(realm_of(realm, "a", "b"), [b"x"], ["b", *more]) for more in ([], MANY)]
    for seal in seals:
        assert meeting(realm, "b", "a").verify_seal("a", STAMP, [b"x"], seal) > 0
    realm.pairings["b"] = Pairing("b", b"2" * 32, 100)
    for seal in seals:
        assert meeting(realm, "b", "a").verify_seal("a", STAMP, [b"x"], seal) == FORGED


def test_of_a_restarted_origin_the_former_key_is_known_a_while_and_then_forgotten(realm: Realm) -> None:
    at_b = meeting(realm, "b", "a")
    seal = sealed(realm, [b"x"], ["b"])
    for start, expected in ((1, True), (2, False)):
        at_b.know_exchange("a", Pairing("a", bytes([start]) * 32, 100).public)
        assert (at_b.verify_seal("a", STAMP, [b"x"], seal) > 0) is expected
    assert at_b.verify_seal("a", STAMP, [b"x"], seal) == UNKNOWN


def test_keys_that_make_every_secret_the_same_are_of_no_use(realm: Realm) -> None:
    at_b = meeting(realm_of(realm, "a"), "b")
    assert at_b.know_exchange("a", bytes(32))
    assert not at_b.know_exchange("a", b"short")
    assert at_b.verify_seal("a", STAMP, [b"x"], sealed(realm, [b"x"], ["b"])) == UNKNOWN
    assert realm.pairing("b").to("a") is None


def test_the_table_of_exchange_keys_is_bounded() -> None:
    pairing = Pairing("me", b"1" * 32, 3)
    others = {name: Pairing(name, name.encode() * 32, 3) for name in "abcd"}
    for name, other in others.items():
        pairing.know(name, other.public)
        assert pairing.to(name) is not None
        assert pairing.of(name, other.id) is not None
    assert pairing.to("a") is None
    assert pairing.of("a", others["a"].id) is None
    assert pairing.to("d") is not None


def test_seals_end_with_the_trust_in_their_origin(realm: Realm) -> None:
    for name, hours in (("a", 1.0), ("b", 24.0), ("c", 24.0)):
        realm.issue(name, hours)
    verifier = meeting(realm, "b", "a", "c")
    seal_of_c = realm.signer("c").seal(STAMP, [], ["b"])
    assert verifier.verify_seal("a", STAMP, [], sealed(realm, [], ["b"])) > 0
    realm.now += 3599
    assert verifier.verify_seal("a", STAMP, [], sealed(realm, [], ["b"])) > 0
    realm.now += 2
    assert verifier.verify_seal("a", STAMP, [], sealed(realm, [], ["b"])) == FORGED
    assert not verifier.verify_vouched("a", b"n", realm.signer("a").vouch("b", b"n"))
    realm.now -= 3601
    assert verifier.verify_seal("c", STAMP, [], seal_of_c) > 0
    verifier.revoke(realm.revoke("c"))
    assert verifier.verify_seal("c", STAMP, [], seal_of_c) == FORGED


def test_the_same_news_make_the_same_signature(shared: Realm) -> None:
    assert shared.signer("a").sign(b"news") == shared.signer("a").sign(b"news")


def test_old_signatures_and_those_of_the_future_are_refused(realm: Realm) -> None:
    verifier = meeting(realm, "b", "a")
    signature, seals = realm.signer("a").sign(b"n"), [sealed(realm, [], ["b", *more]) for more in ([], MANY)]
    for elapsed, record_holds, seal_holds in (
        (-SKEW_S + 1, True, True),
        (-SKEW_S - 1, False, False),
        (SKEW_S + 119, True, True),
        (SKEW_S + 121, True, False),
        (SKEW_S + 199, True, False),
        (SKEW_S + 201, False, False),
    ):
        realm.now = T0 + elapsed
        assert verifier.verify("a", b"n", signature) is record_holds, elapsed
        for seal in seals:
            assert (verifier.verify_seal("a", STAMP, [], seal) > 0) is seal_holds, elapsed


def test_an_expired_certificate_ends_trust_while_it_is_in_use(realm: Realm) -> None:
    signer = realm.signer("a", 1)
    verifier = knowing(realm, "a")
    realm.now += 3599
    assert verifier.is_trusted("a")
    realm.now += 2
    assert not verifier.is_trusted("a")
    assert not verifier.verify("a", b"n", signer.sign(b"n"))
    assert not verifier.learn("a", signer.credential)


def test_a_renewed_certificate_goes_on_and_old_signatures_hold_for_their_time(realm: Realm) -> None:
    signer = realm.signer("a", 1)
    verifier = knowing(realm, "a")
    before = signer.sign(b"n")
    realm.now += 1800
    holder, key = realm.issue("a", 1)
    assert verifier.learn("a", realm.der("a"))
    signer.replace(realm.der("a"), key)
    assert verifier.verify("a", b"n", signer.sign(b"n"))
    realm.now -= 1800
    assert verifier.verify("a", b"n", before)
    realm.now += 3700
    assert verifier.is_trusted("a")
    assert verifier.credentials["a"] == realm.der("a")
    assert verifier.holder("a") == holder


def test_revocation_ends_trust_at_once_and_cannot_be_taken_back_by_an_older_list(realm: Realm) -> None:
    """Checked with a list that is not asked, and with any list taken."""
    realm.issue("a")
    realm.issue("b")
    verifier = knowing(realm, "a", "b")
    signature = realm.signer("a").sign(b"n")
    older = realm.revoke("b")
    realm.now += 10
    newer = realm.revoke("a")
    assert verifier.revoke(newer)
    assert not verifier.verify("a", b"n", signature)
    assert not verifier.is_trusted("a")
    assert not verifier.learn("a", realm.der("a"))
    assert not verifier.revoke(newer), "no news"
    assert not verifier.revoke(older), "older"
    assert not verifier.is_trusted("a")


def test_nobody_else_can_revoke(realm: Realm, tmp_path: Path) -> None:
    other = Realm(tmp_path / "other")
    realm.issue("a")
    other.issue("a")
    verifier = knowing(realm, "a")
    refused: list[str] = []
    verifier.refuse = lambda _, text: refused.append(text)
    assert not verifier.revoke(other.revoke("a"))
    assert not verifier.revoke(b"garbage")
    assert verifier.is_trusted("a")
    assert len(refused) == 2


@pytest.mark.parametrize(
    "flaw", ["foreign", "early", "expired", "name", "domain", "authority", "garbage", "role"]
)
def test_what_does_not_prove_the_name_is_refused_with_its_reason(
    flaw: str, realm: Realm, tmp_path: Path
) -> None:
    """Checked by leaving out the chain, the expiry and the name, one at a time."""
    verifier = realm.verifier()
    credential, name, reason, role = b"", "a", flaw, "peer"
    realm.issue("a")
    if flaw == "foreign":
        other = Realm(tmp_path / "other")
        other.issue("a")
        credential = other.der("a")
    elif flaw == "early":
        credential = realm.der("a")
        realm.now -= 60 + SKEW_S + 1
    elif flaw == "expired":
        credential = realm.der("a")
        realm.now += 25 * 3600
    elif flaw == "name":
        credential, name, reason = realm.der("a"), "b", "foreign"
    elif flaw == "domain":
        other = Realm(tmp_path / "other", "other.example")
        other.issue("a")
        credential, reason = other.der("a"), "foreign"
    elif flaw == "authority":
        credential, reason = realm.authority.certificate.public_bytes(Encoding.DER), "malformed"
    elif flaw == "garbage":
        credential, reason = b"\x30\x03abc", "malformed"
    else:
        credential, role = realm.der("a"), "tdn"
    with pytest.raises(TrustError) as caught:
        verifier.check(name, credential, role=role)
    assert caught.value.reason == reason
    if flaw != "role":
        assert not verifier.learn(name, credential)


def test_the_table_of_peers_is_bounded(realm: Realm) -> None:
    """Checked without the limit."""
    verifier = realm.verifier(peers_max=3)
    for number in range(10):
        realm.issue(f"p{number}")
        assert verifier.learn(f"p{number}", realm.der(f"p{number}"))
    assert len(verifier._holders) == len(verifier.credentials) == 3
    for _ in range(6):
        realm.now += 1
        realm.issue("p9")
        assert verifier.learn("p9", realm.der("p9"))
    assert len(verifier._holders["p9"]) == 3


def test_a_tdn_has_its_role_from_its_certificate(realm: Realm) -> None:
    realm.issue("t", is_tdn=True)
    assert realm.verifier().check("t", realm.der("t"), role="tdn").roles == {"peer", "tdn"}
