"""Seals open for their reader and purpose only; payloads under a topic's key for its holders only."""

from pathlib import Path

import pytest
from support_trust import Realm

from anabranch.security.errors import TrustError
from anabranch.security.letters import ANYBODY, Correspondence
from anabranch.security.sealing import SealingKey, TopicKey, key_time, seal


def test_a_seal_opens_for_one_key_and_one_purpose() -> None:
    mine, other = SealingKey(), SealingKey()
    sealed = seal(b"plots", mine.public, b"answer")
    assert mine.open(sealed, b"answer") == b"plots"
    assert b"plots" not in sealed
    for key, purpose, content in (
        (other, b"answer", sealed),
        (mine, b"question", sealed),
        (mine, b"answer", sealed[:-1] + bytes([sealed[-1] ^ 1])),
        (mine, b"answer", b""),
    ):
        with pytest.raises(TrustError):
            key.open(content, purpose)
    with pytest.raises(TrustError):
        seal(b"plots", b"short", b"answer")
    with pytest.raises(TrustError):  # the key of all zeros, which any secret would open
        seal(b"plots", bytes(32), b"answer")


def test_payloads_open_with_the_key_of_their_topic_and_time() -> None:
    key = TopicKey.make("id-1", 5)
    payload = key.close(b"secret plot")
    assert key.open(payload) == b"secret plot"
    assert key.close(b"secret plot") != payload
    assert key_time(payload) == 5
    assert key_time(b"plain") == -1
    assert "secret" not in repr(key)
    assert key.secret.hex() not in repr(key)
    for stranger in (
        TopicKey.make("id-1", 5),
        TopicKey("id-2", 5, key.secret),
        TopicKey("id-1", 6, key.secret),
    ):
        with pytest.raises(TrustError):
            stranger.open(payload)
    for broken in (b"", payload[:10], payload[:-1], payload[:-1] + bytes([payload[-1] ^ 1])):
        with pytest.raises(TrustError):
            key.open(broken)


def test_a_letter_is_for_one_reader_about_one_thing_and_for_a_while(tmp_path: Path) -> None:
    realm = Realm(tmp_path / "ca")
    signers = {name: realm.signer(name) for name in ("a", "b", "c")}
    verifier = realm.verifier()
    for name in signers:
        verifier.learn(name, realm.der(name))
    posts = {name: Correspondence(name, signer, verifier) for name, signer in signers.items()}
    mine = SealingKey()
    letter = posts["a"].write("b", b"find 1", b"plots", mine.public)
    assert posts["b"].read("a", "b", b"find 1", letter, mine) == b"plots"
    for origin, to, context, key in (
        ("c", "b", b"find 1", mine),
        ("a", "c", b"find 1", mine),
        ("a", "b", b"find 2", mine),
        ("a", "b", b"find 1", SealingKey()),
        ("a", "b", b"find 1", None),
    ):
        with pytest.raises(TrustError):
            posts["b"].read(origin, to, context, letter, key)
    plain = posts["a"].write(ANYBODY, b"locate", b"")
    assert posts["c"].read("a", ANYBODY, b"locate", plain) == b""
    for origin, to, context, key in (
        ("c", ANYBODY, b"locate", None),
        ("a", "b", b"locate", None),
        ("a", ANYBODY, b"find", None),
        ("a", ANYBODY, b"locate", mine),
    ):
        with pytest.raises(TrustError):
            posts["b"].read(origin, to, context, plain, key)
    realm.now += 400.0
    with pytest.raises(TrustError, match="lately"):
        posts["c"].read("a", ANYBODY, b"locate", plain)
