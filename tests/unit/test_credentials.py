"""Signatures with certificates: what is believed, and everything that must not be."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st
from support_trust import T0, Realm

from anabranch.security.credentials import CertificateVerifier
from anabranch.security.errors import TrustError
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


def test_a_signature_made_for_one_purpose_serves_no_other(shared: Realm) -> None:
    verifier, signer = knowing(shared, "a"), shared.signer("a")
    assert verifier.verify_seal("a", b"stamp", [b"x"], signer.seal(b"stamp", [b"x"]))
    assert not verifier.verify("a", b"stamp", signer.seal(b"stamp", [b"x"]))
    assert not verifier.verify_seal("a", b"stamp", [b"x"], signer.sign(b"stamp"))


@given(st.data())
def test_one_changed_byte_anywhere_and_it_is_refused(shared: Realm, data: st.DataObject) -> None:
    verifier, signer = knowing(shared, "a"), shared.signer("a")
    parts = [bytearray(b"stamp"), bytearray(b"first frame"), bytearray(b"second")]
    seal = bytearray(signer.seal(bytes(parts[0]), [bytes(parts[1]), bytes(parts[2])]))
    target = data.draw(st.sampled_from([*parts, seal]))
    at = data.draw(st.integers(0, len(target) - 1))
    target[at] ^= data.draw(st.integers(1, 255))
    assert not verifier.verify_seal("a", bytes(parts[0]), [bytes(parts[1]), bytes(parts[2])], bytes(seal))


def test_frames_cannot_be_cut_otherwise(shared: Realm) -> None:
    verifier, signer = knowing(shared, "a"), shared.signer("a")
    seal = signer.seal(b"s", [b"ab", b"c"])
    assert verifier.verify_seal("a", b"s", [b"ab", b"c"], seal)
    for frames in ([b"abc"], [b"a", b"bc"], [b"ab", b"c", b""], [b"c", b"ab"]):
        assert not verifier.verify_seal("a", b"s", frames, seal)


def test_the_same_news_make_the_same_signature(shared: Realm) -> None:
    assert shared.signer("a").sign(b"news") == shared.signer("a").sign(b"news")


def test_old_signatures_and_those_of_the_future_are_refused(realm: Realm) -> None:
    signer = realm.signer("a", 24)
    verifier = knowing(realm, "a")
    signature, seal = signer.sign(b"n"), signer.seal(b"s", [])
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
        assert verifier.verify_seal("a", b"s", [], seal) is seal_holds, elapsed


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
    verifier._on_refusal = lambda _, text: refused.append(text)
    assert not verifier.revoke(other.revoke("a"))
    assert not verifier.revoke(b"garbage")
    assert verifier.is_trusted("a")
    assert len(refused) == 2


@pytest.mark.parametrize("flaw", ["foreign", "early", "name", "domain", "authority", "garbage", "role"])
def test_what_does_not_prove_the_name_is_refused_with_its_reason(
    flaw: str, realm: Realm, tmp_path: Path
) -> None:
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
