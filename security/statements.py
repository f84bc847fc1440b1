"""Signed statements that outlive the connection they came over: each can be checked with its certificate
alone, long after its signer left. What they say is for `advertisements.py`, `grants.py` and `letters.py`.
"""

import hashlib
import struct

from anabranch.security.certificates import Holder, PrivateKey, is_signed_by, sign_with
from anabranch.security.errors import TrustError
from anabranch.security.trust import SKEW_S, Trust

HEAD = struct.Struct(">16sQ")
"""First half of the certificate's fingerprint, µs since 1970."""
SIGNATURE_MAX_BYTES = 128


def covered(*parts: bytes) -> bytes:
    """What is signed; each part with its length, so that none can pass for another."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def make_signature(
    key: PrivateKey, certificate: bytes, purpose: bytes, payload: bytes, made_at: float
) -> bytes:
    """A signature that names its certificate and its time, and covers both."""
    head = HEAD.pack(hashlib.sha256(certificate).digest()[:16], int(made_at * 1e6))
    return head + sign_with(key, covered(purpose, head, payload))


def named_certificate(signature: bytes) -> bytes:
    """First half of the fingerprint of the certificate it was made with; TrustError if it is no signature."""
    if not HEAD.size < len(signature) <= SIGNATURE_MAX_BYTES:
        raise TrustError("malformed", f"a signature of {len(signature)} B")
    return bytes(signature[:16])


def check_statement(
    trust: Trust,
    holder: Holder,
    purpose: bytes,
    payload: bytes,
    signature: bytes,
    now: float,
    role: str,
    *,
    is_sound: bool = False,
) -> float:
    """When the holder stated this; TrustError unless it did, while its certificate was valid.

    A certificate that has ended since does no harm. One that was revoked takes all its statements along.
    `is_sound`: the trusted authority is known to have issued the certificate, in this role.
    """
    if named_certificate(signature) != holder.fingerprint[:16]:
        raise TrustError("malformed", f"signed with another certificate than that of {holder.uri}")
    made_at: float = HEAD.unpack_from(signature)[1] / 1e6
    if made_at > now + SKEW_S:
        raise TrustError("early", f"a statement of {holder.uri} from the future: check the clock")
    trust.check(holder, made_at, role=role, is_sound=is_sound)
    head = signature[: HEAD.size]
    if not is_signed_by(holder.key, covered(purpose, head, payload), signature[HEAD.size :]):
        raise TrustError("malformed", f"a statement that {holder.uri} did not sign")
    return made_at
