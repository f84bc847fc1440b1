"""Who signs what a peer says about itself, and who checks it."""

from typing import Protocol


class Signer(Protocol):
    """Signs the records of one peer."""

    def sign(self, payload: bytes) -> bytes:
        """The signature over the payload."""


class Verifier(Protocol):
    """Checks records of all peers."""

    def verify(self, origin: str, payload: bytes, signature: bytes) -> bool:
        """Whether `origin` signed this payload."""


class NullSigner:
    """Signs nothing: for an open mesh, where every peer is believed."""

    def sign(self, payload: bytes) -> bytes:
        """An empty signature."""
        del payload
        return b""


class NullVerifier:
    """Believes every record that carries no signature, as `NullSigner` makes them."""

    def verify(self, origin: str, payload: bytes, signature: bytes) -> bool:
        """Whether the signature is empty: a signed record cannot be judged here, so it is refused."""
        del origin, payload
        return not signature
