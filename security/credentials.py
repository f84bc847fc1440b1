"""Signing and checking with certificates: the pair that a secured mesh gives to the core.

Every signature names the certificate and the time it was made at, both of which it covers.
"""

import hashlib
import struct
from collections.abc import Callable, Sequence

from cryptography.hazmat.primitives.serialization import Encoding

from anabranch.security.certificates import Holder, PrivateKey, is_signed_by, read_holder, sign_with
from anabranch.security.errors import TrustError
from anabranch.security.pairing import ID_BYTES, TAG_BYTES, Pairing
from anabranch.security.signing import FORGED, UNKNOWN
from anabranch.security.statements import HEAD, SIGNATURE_MAX_BYTES, covered, make_signature
from anabranch.security.trust import SKEW_S, Trust

_TAGGED = struct.Struct(">B4sQQ")
"""1, id of the origin's exchange key, number, µs since 1970; then for each receiver: id of its key, tag."""
_SIGNED = struct.Struct(">BQI")
"""2, number, receivers; then the ids of their keys, and a signature."""
_NUMBER = struct.Struct(">Q")
_ENTRY_BYTES = ID_BYTES + TAG_BYTES
TAGS_MAX = 16
"""A bundle for more receivers is signed: so many tags take the publisher as long as one signature does."""
HOLDERS_MAX = 3
"""Certificates kept per peer: the present one, the one before a renewal, and one to spare."""
BUNDLE_AGE_MAX_S = 120.0
"""A bundle that was sealed longer ago (plus the skew of clocks) is a repetition of old news."""
_RECORD, _BUNDLE, _VOUCHED = b"anabranch-signed-v1", b"anabranch-sealed-v1", b"anabranch-vouched-v1"
Body = Sequence[bytes | memoryview]

Clock = Callable[[], float]


class CertificateSigner:
    """Signs for the holder of one certificate and its key."""

    is_open = False

    def __init__(self, certificate: bytes, key: PrivateKey, clock: Clock, pairing: Pairing) -> None:
        """`pairing`: shared with the verifier of the same peer."""
        self._clock = clock
        self._pairing = pairing
        self.exchange = pairing.public
        self.replace(certificate, key)

    def replace(self, certificate: bytes, key: PrivateKey) -> None:
        """Sign with a renewed certificate from now on."""
        self.credential = certificate
        self._key = key
        self._fingerprint = hashlib.sha256(certificate).digest()[:16]

    def sign(self, payload: bytes) -> bytes:
        """See `Signer`."""
        return self._sign(_RECORD, payload)

    def seal(
        self, stamp: bytes, body: Body, receivers: Sequence[str], *, for_everybody: bool = False
    ) -> bytes:
        """See `Signer`."""
        pairing = self._pairing
        number = pairing.next_number()
        if for_everybody or len(receivers) > TAGS_MAX:
            ids = [pair.id for peer in receivers if (pair := pairing.to(peer)) is not None]
            head = _SIGNED.pack(2, number, len(ids)) + b"".join(ids)
            return head + self._sign(_BUNDLE, _digest(head + stamp, body))
        head = _TAGGED.pack(1, pairing.id, number, int(self._clock() * 1e6))
        nonce = _NUMBER.pack(number) + bytes(4)
        laid_out = _laid_out(head, stamp, body)
        parts = [head]
        for peer in receivers:
            pair = pairing.to(peer)
            if pair is not None:
                parts += (pair.id, pair.tag(nonce, laid_out))
        return b"".join(parts)

    def vouch(self, receiver: str, payload: bytes) -> bytes:
        """See `Signer`."""
        pairing = self._pairing
        pair = pairing.to(receiver)
        if pair is None:
            return b""
        number = _NUMBER.pack(pairing.next_number())
        return pairing.id + number + pair.tag(number + bytes(4), _VOUCHED + payload)

    def sign_as(self, purpose: bytes, payload: bytes) -> bytes:
        """A signature that holds for one purpose only; see `statements.py`."""
        return make_signature(self._key, self.credential, purpose, payload, self._clock())

    def _sign(self, purpose: bytes, payload: bytes) -> bytes:
        head = HEAD.pack(self._fingerprint, int(self._clock() * 1e6))
        return head + sign_with(self._key, covered(purpose, head, payload))


class CertificateVerifier:
    """Knows the certificates of all peers it heard of, at most `holders_max` of them."""

    is_open = False

    def __init__(
        self,
        trust: Trust,
        domain: str,
        clock: Clock,
        pairing: Pairing,
        *,
        record_age_max_s: float,
        peers_max: int,
        on_refusal: Callable[[str, str], None] | None = None,
    ) -> None:
        self._trust = trust
        self.credentials: dict[str, bytes] = {}
        self._domain = domain
        self._clock = clock
        self._pairing = pairing
        self._record_age_max_s = record_age_max_s
        self._peers_max = peers_max
        self._holders: dict[str, dict[bytes, Holder]] = {}
        self._until: dict[str, float] = {}
        """Until when a peer is trusted by what is known now."""
        self.refuse = on_refusal or (lambda _, __: None)

    @property
    def trust(self) -> Trust:
        """The authorities, and what they revoked."""
        return self._trust

    @trust.setter
    def trust(self, trust: Trust) -> None:
        self._trust = trust
        self._until.clear()

    def learn(self, origin: str, credential: bytes) -> bool:
        """See `Verifier`."""
        if self.credentials.get(origin) == credential and self.is_trusted(origin):
            return True
        try:
            holder = self.check(origin, credential)
        except TrustError as error:
            self.refuse(origin, str(error))
            return False
        if origin not in self._holders and len(self._holders) >= self._peers_max:
            self._make_room()
        self._until.pop(origin, None)
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

    def know_exchange(self, origin: str, public: bytes) -> bool:
        """See `Verifier`."""
        return self._pairing.know(origin, public)

    def verify_seal(self, origin: str, stamp: bytes, body: Body, seal: bytes, *, for_us: bool = True) -> int:
        """See `Verifier`."""
        kind = seal[0] if seal else 0
        if kind == 1 and for_us and len(seal) >= _TAGGED.size:
            return self._verify_tag(origin, stamp, body, seal)
        if kind == 2 and len(seal) >= _SIGNED.size:
            return self._verify_signed(origin, stamp, body, seal, for_us)
        return FORGED

    def _verify_tag(self, origin: str, stamp: bytes, body: Body, seal: bytes) -> int:
        _, key_id, number, made_at_us = _TAGGED.unpack_from(seal)
        pair = self._pairing.of(origin, key_id)
        if pair is None:
            return UNKNOWN
        now = self._clock()
        if not -SKEW_S <= now - made_at_us / 1e6 <= BUNDLE_AGE_MAX_S + SKEW_S or not self._is_sound(
            origin, now
        ):
            return FORGED
        for at in range(_TAGGED.size, len(seal) - _ENTRY_BYTES + 1, _ENTRY_BYTES):
            if seal[at : at + ID_BYTES] == pair.id:
                tag = seal[at + ID_BYTES : at + _ENTRY_BYTES]
                head = seal[: _TAGGED.size]
                nonce = _NUMBER.pack(number) + bytes(4)
                return number if pair.holds(nonce, tag, _laid_out(head, stamp, body)) else FORGED
        return FORGED

    def _verify_signed(self, origin: str, stamp: bytes, body: Body, seal: bytes, for_us: bool) -> int:
        _, number, receivers = _SIGNED.unpack_from(seal)
        end = _SIGNED.size + receivers * ID_BYTES
        if origin not in self._holders:
            return UNKNOWN
        mine = self._pairing.id
        if for_us and all(seal[at : at + ID_BYTES] != mine for at in range(_SIGNED.size, end, ID_BYTES)):
            return FORGED
        digest = _digest(seal[:end] + stamp, body)
        return number if self._holds(origin, _BUNDLE, digest, seal[end:], BUNDLE_AGE_MAX_S) else FORGED

    def verify_vouched(self, origin: str, payload: bytes, proof: bytes) -> bool:
        """See `Verifier`."""
        if len(proof) != ID_BYTES + _NUMBER.size + TAG_BYTES:
            return False
        pair = self._pairing.of(origin, proof[:ID_BYTES])
        number, tag = proof[ID_BYTES:-TAG_BYTES], proof[-TAG_BYTES:]
        return (
            pair is not None
            and self._is_sound(origin, self._clock())
            and pair.holds(number + bytes(4), tag, _VOUCHED + payload)
        )

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
        self._until.clear()
        try:
            return self.trust.revoke(revocations, self._clock())
        except TrustError as error:
            self.refuse("a revocation list", str(error))
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

    def _is_sound(self, origin: str, now: float) -> bool:
        """`is_trusted`, for every bundle."""
        until = self._until.get(origin)
        if until is None:
            ends = [
                each.not_after
                for each in self._holders.get(origin, {}).values()
                if self._is_current(each, now)
            ]
            if not ends:
                return False
            until = self._until[origin] = max(ends)
        return now <= until

    def _is_current(self, holder: Holder, now: float) -> bool:
        return holder.not_before - SKEW_S <= now <= holder.not_after and not self.trust.is_revoked(holder)

    def _make_room(self) -> None:
        """Forget a peer whose certificates ended, else the one that was learnt first."""
        ended = next((each for each in self._holders if not self.is_trusted(each)), None)
        gone = ended if ended is not None else next(iter(self._holders))
        del self._holders[gone]
        self._until.pop(gone, None)
        self._pairing.forget(gone)
        self.credentials.pop(gone, None)


def _digest(stamp: bytes, body: Body) -> bytes:
    digest = hashlib.sha256(len(stamp).to_bytes(8, "big") + stamp)
    for frame in body:
        digest.update(len(frame).to_bytes(8, "big"))
        digest.update(frame)
    return digest.digest()


def _laid_out(head: bytes, stamp: bytes, body: Body) -> bytes:
    """What a tag covers in one piece, so that none of its parts can pass for another."""
    if len(body) == 1:
        return b"".join((_BUNDLE, head, _NUMBER.pack(len(stamp)), stamp, body[0]))
    sizes = b"".join(_NUMBER.pack(len(frame)) for frame in body)
    count = _NUMBER.pack(1 << 63 | len(body))
    return b"".join((_BUNDLE, head, count, sizes, _NUMBER.pack(len(stamp)), stamp, *body))
