"""Topic advertisements: what a creator asks for, what a topic discovery node makes of it and signs, what the
creator countersigns, and who checks all that. The topic's name holds its UUID and the hash of its terms.
"""

import re
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from anabranch.security.certificates import Holder
from anabranch.security.errors import TrustError
from anabranch.security.sealing import digest
from anabranch.security.statements import covered
from anabranch.security.synopses import Descriptors, complete, read_descriptors
from anabranch.security.trust import SKEW_S
from anabranch.security.witnesses import Witnesses

BODY_MAX_BYTES = 16 * 1024
DISCOVERERS_MAX = 256
INSTITUTION_MAX_CHARS = 200
LIFETIME_MAX_S = 10 * 365 * 86400.0
PLACEHOLDER_MAX_BYTES = 4096
_TDN, _CREATOR = b"anabranch-advertisement-tdn-v1", b"anabranch-advertisement-creator-v1"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BROKEN = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError)

Sign = Callable[[bytes, bytes], bytes]
"""(purpose, payload) to a signature: `CertificateSigner.sign_as`."""


class Terms(msgspec.Struct, frozen=True, array_like=True):
    """What the creator asks for."""

    domain: str
    creator: str
    creator_certificate: bytes
    """SHA-256 of the certificate that countersigns."""
    institution: str
    synopsis_type: str
    placeholder: str
    """As the type writes it: see `synopses.py`."""
    descriptors: bytes
    """SHA-256 of the encoded `Descriptors`."""
    restricted: bool
    """Whether publishing and subscribing need a grant."""
    sealed: bool
    """Whether payloads travel under a key of the topic; restricted topics only."""
    discoverers: tuple[str, ...]
    """Peers that may find it, by name; empty: everybody may."""
    lifetime_us: int


class Body(msgspec.Struct, frozen=True, array_like=True):
    """What is signed."""

    terms: Terms
    uuid: bytes
    tdn: str
    """Which discovery node made the UUID."""
    not_before_us: int
    not_after_us: int
    synopsis: str
    """The placeholder made unique with the topic's id."""


class Advertisement:
    """One advertisement, read but not checked; `check` does that."""

    __slots__ = ("body", "creator_signature", "descriptors", "hash", "raw", "tdn_signature")

    def __init__(
        self, raw: bytes, tdn_signature: bytes, creator_signature: bytes, descriptors: bytes
    ) -> None:
        if len(raw) > BODY_MAX_BYTES:
            raise TrustError("malformed", f"an advertisement of {len(raw)} B")
        try:
            self.body: Body = _body_decoder.decode(raw)
        except _BROKEN:
            raise TrustError("malformed", "not an advertisement") from None
        self.raw = raw
        self.tdn_signature = tdn_signature
        self.creator_signature = creator_signature
        self.descriptors = descriptors
        """Encoded; empty where they did not come along."""
        self.hash = digest(covered(raw, tdn_signature))
        """Names this very advertisement."""

    def __repr__(self) -> str:
        return f"Advertisement({self.synopsis!r}, creator={self.creator!r})"

    @property
    def creator(self) -> str:
        """Who asked for the topic, and grants rights."""
        return self.body.terms.creator

    @property
    def id(self) -> str:
        """UUID and hash of the terms: names the topic everywhere, and cannot name another one."""
        return topic_id(self.body)

    @property
    def synopsis(self) -> str:
        """What tells the topic's publications from others: see `synopses.py`."""
        return self.body.synopsis

    @property
    def not_before(self) -> float:
        """When the topic begins, in seconds since 1970."""
        return self.body.not_before_us / 1e6

    @property
    def not_after(self) -> float:
        """When it ends."""
        return self.body.not_after_us / 1e6

    def is_current(self, now: float) -> bool:
        """Whether the topic lives now; clocks may differ."""
        return self.not_before - SKEW_S <= now <= self.not_after

    def may_be_found_by(self, peer: str) -> bool:
        """Whether its creator lets this peer know of it."""
        allowed = self.body.terms.discoverers
        return not allowed or peer == self.creator or peer in allowed

    def packed(self, *, whole: bool = True) -> list[bytes]:
        """As it travels and is stored; without descriptors where only its rights matter."""
        return [
            self.raw,
            self.tdn_signature,
            self.creator_signature,
            self.descriptors if whole else b"",
        ]

    @classmethod
    def unpacked(cls, parts: list[bytes]) -> "Advertisement":
        """The opposite of `packed`; TrustError unless it can be one."""
        if len(parts) != 4:
            raise TrustError("malformed", "not an advertisement")
        return cls(*parts)


def make_terms(
    holder: Holder,
    placeholder: str,
    descriptors: Descriptors,
    *,
    synopsis_type: str,
    institution: str,
    restricted: bool,
    sealed: bool,
    discoverers: tuple[str, ...],
    lifetime_s: float,
) -> tuple[Terms, bytes]:
    """What to ask for, and the encoded descriptors; TrustError names what cannot be."""
    encoded = msgspec.msgpack.encode(descriptors)
    terms = Terms(
        holder.domain,
        holder.name,
        holder.fingerprint,
        institution,
        synopsis_type,
        placeholder,
        digest(encoded),
        restricted,
        sealed,
        tuple(sorted(set(discoverers))),
        int(lifetime_s * 1e6) if 0 < lifetime_s < float("inf") else -1,
    )
    check_terms(terms, encoded)
    return terms, encoded


def check_terms(terms: Terms, descriptors: bytes) -> Descriptors:
    """The descriptors; TrustError when such a topic cannot be."""
    if not 0 < terms.lifetime_us <= LIFETIME_MAX_S * 1e6:
        raise TrustError("malformed", f"lifetime: above 0 and at most {LIFETIME_MAX_S:g} seconds")
    if len(terms.institution) > INSTITUTION_MAX_CHARS or not (
        terms.institution.isprintable() or not terms.institution
    ):
        raise TrustError("malformed", f"institution: at most {INSTITUTION_MAX_CHARS} printable characters")
    if len(terms.placeholder.encode()) > PLACEHOLDER_MAX_BYTES:
        raise TrustError("malformed", f"synopsis: at most {PLACEHOLDER_MAX_BYTES} B")
    if terms.sealed and not terms.restricted:
        raise TrustError("malformed", "sealed: only a restricted topic has holders that its key could go to")
    if len(terms.discoverers) > DISCOVERERS_MAX:
        raise TrustError("malformed", f"discoverers: {DISCOVERERS_MAX} at most")
    for name in terms.discoverers:
        if not _NAME.fullmatch(name):
            raise TrustError("malformed", f"discoverers: {name[:80]!r} is no name of a peer")
    complete(terms.synopsis_type, terms.placeholder, "0" * 32 + "-" + "0" * 32, terms.restricted)
    if digest(descriptors) != terms.descriptors:
        raise TrustError("malformed", "descriptors that do not belong to these terms")
    return read_descriptors(descriptors)


def mint(terms: Terms, descriptors: bytes, tdn: str, sign: Sign, now: float) -> Advertisement:
    """A discovery node answers a creation request: a new topic, signed, not countersigned yet."""
    check_terms(terms, descriptors)
    begins_us = int(now * 1e6)
    body = Body(terms, uuid.uuid4().bytes, tdn, begins_us, begins_us + terms.lifetime_us, "")
    synopsis = complete(terms.synopsis_type, terms.placeholder, topic_id(body), terms.restricted)
    raw = msgspec.msgpack.encode(msgspec.structs.replace(body, synopsis=synopsis))
    return Advertisement(raw, sign(_TDN, raw), b"", descriptors)


def accept(
    minted: Advertisement, asked: Terms, tdn: str, witnesses: Witnesses, sign: Sign, now: float
) -> Advertisement:
    """The creator countersigns; TrustError unless it is what was asked for, by the node that was asked."""
    if minted.body.terms != asked:
        raise TrustError("malformed", f"discovery node {tdn!r} returned other terms than were asked for")
    if minted.body.tdn != tdn:
        raise TrustError("malformed", f"discovery node {tdn!r} returned what {minted.body.tdn!r} signed")
    _check_made(minted, witnesses, now)
    return Advertisement(
        minted.raw,
        minted.tdn_signature,
        sign(_CREATOR, _countersigned(minted)),
        minted.descriptors,
    )


def check(
    advertisement: Advertisement, witnesses: Witnesses, now: float, *, is_vouched: bool = False
) -> None:
    """TrustError unless node and creator stand behind it and it lives.

    `is_vouched`: a discovery node just signed that it checked it. It could have signed the advertisement
    itself, so the signature of the first node adds nothing; the creator's is looked at in any case.
    """
    if not is_vouched:
        _check_made(advertisement, witnesses, now)
    elif advertisement.body.synopsis != _synopsis_of(advertisement.body):
        raise TrustError("malformed", "a synopsis that does not belong to its topic")
    terms = advertisement.body.terms
    witnesses.check(
        terms.creator, _CREATOR, _countersigned(advertisement), advertisement.creator_signature, now
    )
    if witnesses.holder(advertisement.creator_signature).fingerprint != terms.creator_certificate:
        raise TrustError("malformed", f"countersigned with another certificate of {terms.creator!r}")
    if not advertisement.is_current(now):
        raise TrustError("expired", f"the topic {advertisement.synopsis!r} has ended, or not begun")
    if advertisement.descriptors and digest(advertisement.descriptors) != terms.descriptors:
        raise TrustError("malformed", "descriptors of another topic")


def topic_id(body: Body) -> str:
    """See `Advertisement.id`."""
    terms = msgspec.msgpack.encode(msgspec.structs.replace(body, synopsis=""))
    return f"{body.uuid.hex()}-{digest(terms)[:16].hex()}"


def uuid_text(raw: bytes) -> str:
    """A UUID for people; TrustError unless it is one."""
    if len(raw) != 16:
        raise TrustError("malformed", "an advertisement that contradicts itself")
    return str(uuid.UUID(bytes=raw))


def readable(advertisement: Advertisement) -> dict[str, Any]:
    """For people and for JSON."""
    body, terms = advertisement.body, advertisement.body.terms
    told: dict[str, Any] = {
        "id": advertisement.id,
        "uuid": uuid_text(body.uuid),
        "synopsis": body.synopsis,
        "synopsis_type": terms.synopsis_type,
        "creator": terms.creator,
        "institution": terms.institution,
        "tdn": body.tdn,
        "restricted": terms.restricted,
        "sealed": terms.sealed,
        "discoverers": list(terms.discoverers),
        "not_before": advertisement.not_before,
        "not_after": advertisement.not_after,
    }
    if advertisement.descriptors:
        found = read_descriptors(advertisement.descriptors)
        told["descriptors"] = {
            "paths": list(found.paths),
            "text": found.text,
            "properties": found.properties,
            "xml": found.xml,
        }
    return told


def _check_made(advertisement: Advertisement, witnesses: Witnesses, now: float) -> None:
    body = advertisement.body
    made_at = witnesses.check(body.tdn, _TDN, advertisement.raw, advertisement.tdn_signature, now, role="tdn")
    if len(body.uuid) != 16 or body.not_after_us - body.not_before_us != body.terms.lifetime_us:
        raise TrustError("malformed", "an advertisement that contradicts itself")
    if abs(made_at - advertisement.not_before) > SKEW_S:
        raise TrustError("malformed", "an advertisement that was signed at another time than it says")
    if body.synopsis != _synopsis_of(body):
        raise TrustError("malformed", "a synopsis that does not belong to its topic")


def _synopsis_of(body: Body) -> str:
    terms = body.terms
    return complete(terms.synopsis_type, terms.placeholder, topic_id(body), terms.restricted)


def _countersigned(advertisement: Advertisement) -> bytes:
    return covered(advertisement.raw, advertisement.tdn_signature)


_body_decoder = msgspec.msgpack.Decoder(Body)
