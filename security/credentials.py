"""Signing and checking with certificates: the pair that a secured mesh gives to the core.

Every signature names the certificate and the time it was made at, both of which it covers.
"""

import hashlib
from collections.abc import Callable, Sequence

from cryptography.hazmat.primitives.serialization import Encoding

from anabranch.security.certificates import Holder, PrivateKey, is_signed_by, read_holder, sign_with
from anabranch.security.errors import TrustError
from anabranch.security.statements import HEAD, SIGNATURE_MAX_BYTES, covered, make_signature
from anabranch.security.trust import SKEW_S, Trust

HOLDERS_MAX = 3
"""Certificates kept per peer: the present one, the one before a renewal, and one to spare."""
BUNDLE_AGE_MAX_S = 120.0
"""A bundle that was sealed longer ago (plus the skew of clocks) is a repetition of old news."""
_RECORD, _BUNDLE = b"anabranch-signed-v1", b"anabranch-sealed-v1"

Clock = Callable[[], float]


class CertificateSigner:
    """Signs for the holder of one certificate and its key."""

    is_open = False

    def __init__(self, certificate: bytes, key: PrivateKey, clock: Clock) -> None:
        self._clock = clock
        self.replace(certificate, key)

    def replace(self, certificate: bytes, key: PrivateKey) -> None:
        """Sign with a renewed certificate from now on."""
        self.credential = certificate
        self._key = key
        self._fingerprint = hashlib.sha256(certificate).digest()[:16]

    def sign(self, payload: bytes) -> bytes:
        """See `Signer`."""
        head = HEAD.pack(self._fingerprint, int(self._clock() * 1e6))
        return head + sign_with(self._key, covered(_RECORD, head, payload))

    def seal(self, stamp: bytes, body: Sequence[bytes | memoryview]) -> bytes:
        """See `Signer`."""
        head = HEAD.pack(self._fingerprint, int(self._clock() * 1e6))
        return head + sign_with(self._key, covered(_BUNDLE, head, _digest(stamp, body)))

    def sign_as(self, purpose: bytes, payload: bytes) -> bytes:
        """A signature that holds for one purpose only; see `statements.py`."""
        return make_signature(self._key, self.credential, purpose, payload, self._clock())


class CertificateVerifier:
    """Knows the certificates of all peers it heard of, at most `holders_max` of them."""

    is_open = False

    def __init__(
        self,
        trust: Trust,
        domain: str,
        clock: Clock,
        *,
        record_age_max_s: float,
        peers_max: int,
        on_refusal: Callable[[str, str], None] | None = None,
    ) -> None:
        self.trust = trust
        self.credentials: dict[str, bytes] = {}
        self._domain = domain
        self._clock = clock
        self._record_age_max_s = record_age_max_s
        self._peers_max = peers_max
        self._holders: dict[str, dict[bytes, Holder]] = {}
        self._on_refusal = on_refusal or (lambda _, __: None)

    def learn(self, origin: str, credential: bytes) -> bool:
        """See `Verifier`."""
        if self.credentials.get(origin) == credential:
            return self.is_trusted(origin)
        try:
            holder = self.check(origin, credential)
        except TrustError as error:
            self._on_refusal(origin, str(error))
            return False
        if origin not in self._holders and len(self._holders) >= self._peers_max:
            self._make_room()
        holders = self._holders.setdefault(origin, {})
        holders[holder.fingerprint[:16]] = holder
        if len(holders) > HOLDERS_MAX:
            holders.pop(min(holders, key=lambda each: holders[each].not_after))
        latest = max(holders.values(), key=lambda each: each.not_before)
        if latest is holder or origin not in self.credentials:
            self.credentials[origin] = credential
        return True

    def check(self, origin: str, credential: bytes, *, role: str = "peer") -> Holder:
        """The holder of a certificate; TrustError unless it proves the name, here and now."""
        holder = read_holder(credential, f"certificate presented by {origin!r}")
        if holder.domain != self._domain or holder.name != origin:
            raise TrustError(
                "foreign", f"{origin!r} presents the certificate of {holder.uri}, in domain {self._domain!r}"
            )
        self.trust.check(holder, self._clock(), role=role)
        return holder

    def verify(self, origin: str, payload: bytes, signature: bytes) -> bool:
        """See `Verifier`."""
        return self._holds(origin, _RECORD, payload, signature, self._record_age_max_s)

    def verify_lasting(self, origin: str, payload: bytes, signature: bytes) -> bool:
        """See `Verifier`."""
        return self._holds(origin, _RECORD, payload, signature, float("inf"))

    def verify_seal(self, origin: str, stamp: bytes, body: Sequence[bytes | memoryview], seal: bytes) -> bool:
        """See `Verifier`."""
        return self._holds(origin, _BUNDLE, _digest(stamp, body), seal, BUNDLE_AGE_MAX_S)

    def verify_as(
        self, origin: str, purpose: bytes, payload: bytes, signature: bytes, age_max_s: float
    ) -> bool:
        """Whether `origin` signed this for this purpose, lately, with a certificate known here."""
        return self._holds(origin, purpose, payload, signature, age_max_s)

    def is_trusted(self, origin: str) -> bool:
        """See `Verifier`."""
        now = self._clock()
        return any(self._is_current(each, now) for each in self._holders.get(origin, {}).values())

    def revoke(self, revocations: bytes) -> bool:
        """See `Verifier`."""
        try:
            return self.trust.revoke(revocations, self._clock())
        except TrustError as error:
            self._on_refusal("a revocation list", str(error))
            return False

    def revocations(self) -> list[bytes]:
        """See `Verifier`."""
        return [each.public_bytes(Encoding.DER) for each in self.trust.lists.values()]

    def holder(self, origin: str) -> Holder | None:
        """The certificate in use by a peer."""
        return max(self._holders.get(origin, {}).values(), key=lambda each: each.not_before, default=None)

    def _holds(self, origin: str, purpose: bytes, payload: bytes, signature: bytes, age_max_s: float) -> bool:
        if not HEAD.size < len(signature) <= SIGNATURE_MAX_BYTES:
            return False
        fingerprint, made_at_us = HEAD.unpack_from(signature)
        holder = self._holders.get(origin, {}).get(fingerprint)
        now = self._clock()
        made_at = made_at_us / 1e6
        if holder is None or not self._is_current(holder, now):
            return False
        if not now - age_max_s - SKEW_S <= made_at <= now + SKEW_S:
            return False
        head = signature[: HEAD.size]
        return is_signed_by(holder.key, covered(purpose, head, payload), signature[HEAD.size :])

    def _is_current(self, holder: Holder, now: float) -> bool:
        return holder.not_before - SKEW_S <= now <= holder.not_after and not self.trust.is_revoked(holder)

    def _make_room(self) -> None:
        """Forget a peer whose certificates ended, else the one that was learnt first."""
        ended = next((each for each in self._holders if not self.is_trusted(each)), None)
        gone = ended if ended is not None else next(iter(self._holders))
        del self._holders[gone]
        self.credentials.pop(gone, None)


def _digest(stamp: bytes, body: Sequence[bytes | memoryview]) -> bytes:
    digest = hashlib.sha256(len(stamp).to_bytes(8, "big") + stamp)
    for frame in body:
        digest.update(len(frame).to_bytes(8, "big"))
        digest.update(frame)
    return digest.digest()
