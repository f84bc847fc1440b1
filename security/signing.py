"""Who signs what a peer says about itself, and who checks it.

The core is given a pair of these. The null pair makes an open mesh; `credentials.py` has the one with
certificates.
"""

from collections.abc import Sequence
from typing import Protocol

FORGED = 0
"""What `Verifier.verify_seal` says of a bundle that its origin did not seal for us."""
UNKNOWN = -1
"""The same, when the origin's key has not been heard of yet."""


class Signer(Protocol):
    """Signs for one peer."""

    credential: bytes
    """What others need to check this peer's signatures: its certificate; empty in an open mesh."""
    exchange: bytes
    """Public key by which others agree with this peer on keys for seals; empty in an open mesh."""
    is_open: bool
    """Whether nothing is signed at all."""

    def sign(self, payload: bytes) -> bytes:
        """The signature over the payload."""

    def seal(
        self,
        stamp: bytes,
        body: Sequence[bytes | memoryview],
        receivers: Sequence[str],
        *,
        for_everybody: bool = False,
    ) -> bytes:
        """Proof for these receivers that a bundle is ours: what must not change on its way, and its frames.

        `for_everybody`: others than the receivers shall be able to check it as well.
        """

    def vouch(self, receiver: str, payload: bytes) -> bytes:
        """Proof for one receiver that we said this, whoever brings it; empty when its key is not known."""


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

    def know_exchange(self, origin: str, public: bytes) -> bool:
        """Take the exchange key of a peer, from a record that was verified; False when it is none."""

    def verify_seal(
        self,
        origin: str,
        stamp: bytes,
        body: Sequence[bytes | memoryview],
        seal: bytes,
        *,
        for_us: bool = True,
    ) -> int:
        """The number under which `origin` sealed this bundle, lately, for us; else FORGED or UNKNOWN.

        `for_us=False`: we only pass it on, and can tell only if it was sealed for everybody.
        """

    def verify_vouched(self, origin: str, payload: bytes, proof: bytes) -> bool:
        """Whether `origin` said this to us."""

    def refuse(self, origin: str, why: str) -> None:
        """Put on record that something in this peer's name was refused."""

    def is_trusted(self, origin: str) -> bool:
        """Whether the peer has a credential that is valid now: neither expired nor revoked."""

    def revoke(self, revocations: bytes) -> bool:
        """Take a revocation list; whether it is an authority's own, and news."""

    def revocations(self) -> list[bytes]:
        """The lists that hold now."""


class NullSigner:
    """Signs nothing: for an open mesh, where every peer is believed. Nothing is sealed there."""

    credential = b""
    exchange = b""
    is_open = True

    def sign(self, payload: bytes) -> bytes:
        """An empty signature."""
        del payload
        return b""

    def seal(
        self,
        stamp: bytes,
        body: Sequence[bytes | memoryview],
        receivers: Sequence[str],
        *,
        for_everybody: bool = False,
    ) -> bytes:
        """An empty seal."""
        del stamp, body, receivers, for_everybody
        return b""

    def vouch(self, receiver: str, payload: bytes) -> bytes:
        """An empty proof."""
        del receiver, payload
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

    def know_exchange(self, origin: str, public: bytes) -> bool:
        """There are none."""
        del origin, public
        return False

    def verify_seal(
        self,
        origin: str,
        stamp: bytes,
        body: Sequence[bytes | memoryview],
        seal: bytes,
        *,
        for_us: bool = True,
    ) -> int:
        """Nothing that is sealed can be judged here."""
        del origin, stamp, body, seal, for_us
        return FORGED

    def verify_vouched(self, origin: str, payload: bytes, proof: bytes) -> bool:
        """Whether the proof is empty."""
        del origin, payload
        return not proof

    def refuse(self, origin: str, why: str) -> None:
        """Nobody keeps a record here."""
        del origin, why

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
