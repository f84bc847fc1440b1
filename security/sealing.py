"""Sealing for one reader (HPKE, RFC 9180) and for all who hold a topic's key (ChaCha20-Poly1305).

HPKE does not tell who sealed: whoever needs to know that signs what is inside, as `letters.py` does.
"""

import hashlib
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from anabranch.security.errors import TrustError
from anabranch.security.statements import covered

PUBLIC_BYTES = 32
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
_NONCE_BYTES = 12
_TAG_BYTES = 16
_KEY_BYTES = 32


class SealingKey:
    """A key pair that others seal to; lives in memory only."""

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    def open(self, sealed: bytes, purpose: bytes) -> bytes:
        """What was sealed to this key for this purpose; TrustError otherwise."""
        try:
            return _SUITE.decrypt(sealed, self._private, purpose)
        except (InvalidTag, ValueError) as error:
            raise TrustError("malformed", f"a seal that does not open ({type(error).__name__})") from None


def seal(plain: bytes, public: bytes, purpose: bytes) -> bytes:
    """For the holder of a key pair alone; opens for the same purpose only."""
    try:
        return _SUITE.encrypt(plain, X25519PublicKey.from_public_bytes(public), purpose)
    except ValueError as error:
        raise TrustError("malformed", f"a key of {len(public)} B that nothing can be sealed to") from error


class TopicKey:
    """The secret of one restricted topic, from one moment on. Whoever holds it reads and writes payloads."""

    def __init__(self, topic: str, made_at_us: int, secret: bytes) -> None:
        if len(secret) != _KEY_BYTES or not 0 <= made_at_us < 2**63:
            raise TrustError("malformed", f"not a key of topic {topic}")
        self.topic = topic
        self.made_at_us = made_at_us
        """Names the key: a later one replaces it."""
        self.secret = secret
        self._head = made_at_us.to_bytes(8, "big")
        self._cipher = ChaCha20Poly1305(secret)

    @classmethod
    def make(cls, topic: str, made_at_us: int) -> "TopicKey":
        """A new one."""
        return cls(topic, made_at_us, os.urandom(_KEY_BYTES))

    def __repr__(self) -> str:
        return f"TopicKey({self.topic!r}, made_at_us={self.made_at_us})"

    def close(self, plain: bytes) -> bytes:
        """A payload as it travels."""
        nonce = os.urandom(_NONCE_BYTES)
        return self._head + nonce + self._cipher.encrypt(nonce, plain, self._bound())

    def open(self, payload: bytes) -> bytes:
        """The payload again; TrustError where it was not closed with this key for this topic."""
        at = len(self._head) + _NONCE_BYTES
        if key_time(payload) != self.made_at_us:
            raise TrustError("malformed", f"a payload of {self.topic} under another key")
        try:
            return self._cipher.decrypt(payload[len(self._head) : at], payload[at:], self._bound())
        except InvalidTag:
            raise TrustError("malformed", f"a payload of {self.topic} that does not open") from None

    def _bound(self) -> bytes:
        return covered(b"anabranch-payload-v1", self.topic.encode(), self._head)


def key_time(payload: bytes) -> int:
    """Which key a payload was closed with; -1 when it was not."""
    if len(payload) < 8 + _NONCE_BYTES + _TAG_BYTES:
        return -1
    return int.from_bytes(payload[:8], "big")


def digest(content: bytes) -> bytes:
    """SHA-256."""
    return hashlib.sha256(content).digest()
