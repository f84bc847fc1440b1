"""Letters between two peers of a mesh: signed by the writer, and sealed so that only the reader reads them.

A letter holds for one reader and one context (what it is, and what it answers); elsewhere it is refused.
"""

import msgspec

from anabranch.security.certificates import Holder
from anabranch.security.credentials import CertificateSigner, CertificateVerifier
from anabranch.security.errors import TrustError
from anabranch.security.sealing import SealingKey, seal
from anabranch.security.statements import covered

AGE_MAX_S = 60.0
"""A letter that was written longer ago (plus the skew of clocks) is a repetition of old news."""
ANYBODY = ""
"""The reader of a letter that goes through the mesh."""
_PURPOSE = b"anabranch-letter-v1"
_BROKEN = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError)


class _Letter(msgspec.Struct, array_like=True):
    payload: bytes
    signature: bytes


class Correspondence:
    """The letters of one peer."""

    def __init__(self, me: str, signer: CertificateSigner, verifier: CertificateVerifier) -> None:
        self._me = me
        self._signer = signer
        self._verifier = verifier

    def write(self, to: str, context: bytes, payload: bytes, key: bytes = b"") -> bytes:
        """A letter; sealed to the key if there is one."""
        bound = _bound(self._me, to, context)
        letter = msgspec.msgpack.encode(
            _Letter(payload, self._signer.sign_as(_PURPOSE, covered(bound, payload)))
        )
        return b"s" + seal(letter, key, bound) if key else b"o" + letter

    def read(
        self, origin: str, to: str, context: bytes, letter: bytes, key: SealingKey | None = None
    ) -> bytes:
        """What `origin` wrote; TrustError unless it wrote that lately, to this reader, in this context.

        With a key, letters that are not sealed to it are refused.
        """
        bound = _bound(origin, to, context)
        is_sealed, content = letter[:1] == b"s", letter[1:]
        if is_sealed != (key is not None):
            raise TrustError(
                "malformed", f"a letter of {origin!r} that is {'' if is_sealed else 'not '}sealed"
            )
        if key is not None:
            content = key.open(content, bound)
        try:
            found = _decoder.decode(content)
        except _BROKEN:
            raise TrustError("malformed", f"not a letter of {origin!r}") from None
        covers = covered(bound, found.payload)
        if not self._verifier.verify_as(origin, _PURPOSE, covers, found.signature, AGE_MAX_S):
            raise TrustError("malformed", f"a letter that {origin!r} did not sign, or not lately")
        return found.payload

    def holder(self, origin: str) -> Holder:
        """The certificate in use by a peer; TrustError when it is not known."""
        holder = self._verifier.holder(origin)
        if holder is None:
            raise TrustError("foreign", f"no certificate of {origin!r} is known here")
        return holder


def _bound(origin: str, to: str, context: bytes) -> bytes:
    return covered(_PURPOSE, origin.encode(), to.encode(), context)


_decoder = msgspec.msgpack.Decoder(_Letter)
