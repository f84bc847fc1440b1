"""Who signs what a peer says about itself, and who checks it.

The core is given a pair of these. The null pair makes an open mesh; `credentials.py` has the one with
certificates.
"""

from collections.abc import Sequence
from typing import Protocol

SEAL_OVERHEAD_MAX_BYTES = 512
"""Longest seal of a bundle."""


class Signer(Protocol):
    """Signs for one peer."""

    credential: bytes
    """What others need to check this peer's signatures: its certificate; empty in an open mesh."""
    is_open: bool
    """Whether nothing is signed at all."""

    def sign(self, payload: bytes) -> bytes:
        """The signature over the payload."""

    def seal(self, stamp: bytes, body: Sequence[bytes | memoryview]) -> bytes:
        """The signature over a bundle: what must not change on its way, and its frames."""


class Verifier(Protocol):
    """Checks what all peers signed."""

    is_open: bool
    """Whether everybody is believed."""
    credentials: dict[str, bytes]
    """The latest credential of each peer that was learnt."""

    def learn(self, origin: str, credential: bytes) -> bool:
        """Take the credential of a peer; False when it does not prove that name, or is not valid now."""

    def verify(self, origin: str, payload: bytes, signature: bytes) -> bool:
        """Whether `origin` signed this payload, lately enough to be no repetition of old news."""

    def verify_lasting(self, origin: str, payload: bytes, signature: bytes) -> bool:
        """Whether `origin` signed this payload, however long ago."""

    def verify_seal(self, origin: str, stamp: bytes, body: Sequence[bytes | memoryview], seal: bytes) -> bool:
        """Whether `origin` sealed this bundle, lately."""

    def is_trusted(self, origin: str) -> bool:
        """Whether the peer has a credential that is valid now: neither expired nor revoked."""

    def revoke(self, revocations: bytes) -> bool:
        """Take a revocation list; whether it is an authority's own, and news."""

    def revocations(self) -> list[bytes]:
        """The lists that hold now."""


class NullSigner:
    """Signs nothing: for an open mesh, where every peer is believed."""

    credential = b""
    is_open = True

    def sign(self, payload: bytes) -> bytes:
        """An empty signature."""
        del payload
        return b""

    def seal(self, stamp: bytes, body: Sequence[bytes | memoryview]) -> bytes:
        """An empty seal."""
        del stamp, body
        return b""


class NullVerifier:
    """Believes every record that carries no signature, as `NullSigner` makes them."""

    is_open = True

    def __init__(self) -> None:
        self.credentials: dict[str, bytes] = {}

    def learn(self, origin: str, credential: bytes) -> bool:
        """Whether there is no credential: one cannot be judged here."""
        del origin
        return not credential

    def verify(self, origin: str, payload: bytes, signature: bytes) -> bool:
        """Whether the signature is empty: a signed record cannot be judged here, so it is refused."""
        del origin, payload
        return not signature

    def verify_lasting(self, origin: str, payload: bytes, signature: bytes) -> bool:
        """Whether the signature is empty."""
        return self.verify(origin, payload, signature)

    def verify_seal(self, origin: str, stamp: bytes, body: Sequence[bytes | memoryview], seal: bytes) -> bool:
        """Whether the seal is empty."""
        del origin, stamp, body
        return not seal

    def is_trusted(self, origin: str) -> bool:
        """Everybody is."""
        del origin
        return True

    def revoke(self, revocations: bytes) -> bool:
        """No authority, no revocation."""
        del revocations
        return False

    def revocations(self) -> list[bytes]:
        """None."""
        return []
