"""Rights to a restricted topic, handed on in chains that begin at its creator and can only narrow.

A grant names its holder, whose certificate proves it: one that was copied is of no use to anybody else.
"""

from typing import Any

import msgspec

from anabranch.security.advertisements import Advertisement, Sign
from anabranch.security.entitlement import PUBLISH, SUBSCRIBE
from anabranch.security.errors import TrustError
from anabranch.security.sealing import digest
from anabranch.security.statements import covered
from anabranch.security.trust import SKEW_S
from anabranch.security.witnesses import Witnesses

VERBS = {"publish": PUBLISH, "subscribe": SUBSCRIBE}
DEPTH_MAX = 4
"""Links of a chain at most."""
GRANT_MAX_BYTES = 1024
_PURPOSE, _REVOCATION = b"anabranch-grant-v1", b"anabranch-grant-revoked-v1"
_BROKEN = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError)


class GrantBody(msgspec.Struct, frozen=True, array_like=True):
    """One link of a chain."""

    topic: str
    """The topic's id."""
    issuer: str
    holder: str
    verbs: int
    not_before_us: int
    not_after_us: int
    depth: int
    """How many further links may follow."""
    parent: bytes
    """SHA-256 of the link before; empty where the creator grants."""


class Grant(msgspec.Struct, frozen=True, array_like=True):
    """A link with its issuer's signature."""

    raw: bytes
    signature: bytes

    @property
    def hash(self) -> bytes:
        """Names this very link."""
        return digest(covered(self.raw, self.signature))


Chain = tuple[Grant, ...]
"""The creator's grant first; the last one names the holder."""


class Right(msgspec.Struct, frozen=True):
    """What a chain that was checked is worth, as long as nobody in it is revoked."""

    topic: str
    holder: str
    verbs: int
    not_before: float
    not_after: float
    depth: int
    holders: tuple[tuple[str, float], ...]
    """Everybody in the chain, and when they were granted it."""

    def allows(self, verb: int, now: float) -> bool:
        """Whether the verb may be used now; a clock that is behind its neighbours' does no harm."""
        return bool(self.verbs & verb) and self.not_before - SKEW_S <= now <= self.not_after


class RevocationBody(msgspec.Struct, frozen=True, array_like=True):
    """The creator takes back what a holder was granted until now, and what it granted others."""

    topic: str
    creator: str
    holder: str


class Revocation(msgspec.Struct, frozen=True, array_like=True):
    """With the creator's signature, which tells when."""

    raw: bytes
    signature: bytes


def issue(
    topic: str,
    issuer: str,
    holder: str,
    sign: Sign,
    *,
    verbs: int,
    not_before: float,
    not_after: float,
    depth: int,
    parent: Chain = (),
) -> Chain:
    """A new link; TrustError when it would be worth nothing. Whether the issuer may is checked by `check`."""
    if not 0 < verbs <= PUBLISH | SUBSCRIBE:
        raise TrustError("malformed", "a grant needs publish, subscribe or both")
    if not_after <= not_before:
        raise TrustError("malformed", "a grant has to end after it begins")
    if not 0 <= depth < DEPTH_MAX:
        raise TrustError("malformed", f"delegate = {depth}: 0 to {DEPTH_MAX - 1}")
    body = GrantBody(
        topic,
        issuer,
        holder,
        verbs,
        int(not_before * 1e6),
        int(not_after * 1e6),
        depth,
        parent[-1].hash if parent else b"",
    )
    raw = msgspec.msgpack.encode(body)
    return (*parent, Grant(raw, sign(_PURPOSE, raw)))


def check(chain: Chain, advertisement: Advertisement, witnesses: Witnesses, now: float) -> Right:
    """What a chain is worth; TrustError where a link is not the last holder's, or wider than the one before.

    The advertisement has been checked. Times of the chain are in the result: a right may have ended.
    """
    if not 1 <= len(chain) <= DEPTH_MAX:
        raise TrustError("malformed", f"a chain of {len(chain)} grants")
    issuer, parent, before = advertisement.creator, b"", None
    holders: list[tuple[str, float]] = []
    for link in chain:
        body = read_grant(link)
        if body.topic != advertisement.id:
            raise TrustError("malformed", "a grant for another topic")
        if body.issuer != issuer or body.parent != parent:
            raise TrustError("malformed", f"a grant by {body.issuer!r} where {issuer!r} has to grant")
        made_at = witnesses.check(issuer, _PURPOSE, link.raw, link.signature, now)
        if not 0 < body.verbs <= PUBLISH | SUBSCRIBE or not 0 <= body.depth < DEPTH_MAX:
            raise TrustError("malformed", "a grant of rights that there are not")
        if before is not None and (
            body.verbs & ~before.verbs
            or body.depth >= before.depth
            or body.not_before_us < before.not_before_us
            or body.not_after_us > before.not_after_us
        ):
            raise TrustError("role", f"a grant by {issuer!r} that is wider than its own")
        holders.append((body.holder, made_at))
        issuer, parent, before = body.holder, link.hash, body
    assert before is not None
    return Right(
        before.topic,
        before.holder,
        before.verbs,
        max(before.not_before_us / 1e6, advertisement.not_before),
        min(before.not_after_us / 1e6, advertisement.not_after),
        before.depth,
        tuple(holders),
    )


def read_grant(grant: Grant) -> GrantBody:
    """What a link says; TrustError unless it is one."""
    if len(grant.raw) > GRANT_MAX_BYTES:
        raise TrustError("malformed", f"a grant of {len(grant.raw)} B")
    try:
        return _grant_decoder.decode(grant.raw)
    except _BROKEN:
        raise TrustError("malformed", "not a grant") from None


def revoke(topic: str, creator: str, holder: str, sign: Sign) -> Revocation:
    """The creator's word that a holder has no rights from before now."""
    raw = msgspec.msgpack.encode(RevocationBody(topic, creator, holder))
    return Revocation(raw, sign(_REVOCATION, raw))


def check_revocation(
    revocation: Revocation, advertisement: Advertisement, witnesses: Witnesses, now: float
) -> tuple[str, float]:
    """(holder, when); TrustError unless the topic's creator said so."""
    body = read_revocation(revocation)
    if (body.topic, body.creator) != (advertisement.id, advertisement.creator):
        raise TrustError("malformed", "a revocation by another than the topic's creator")
    signature = revocation.signature
    return body.holder, witnesses.check(body.creator, _REVOCATION, revocation.raw, signature, now)


def read_revocation(revocation: Revocation) -> RevocationBody:
    """What it says; TrustError unless it is one."""
    if len(revocation.raw) > GRANT_MAX_BYTES:
        raise TrustError("malformed", f"a revocation of {len(revocation.raw)} B")
    try:
        return _revocation_decoder.decode(revocation.raw)
    except _BROKEN:
        raise TrustError("malformed", "not a revocation") from None


def readable(chain: Chain) -> list[dict[str, Any]]:
    """For people and for JSON."""
    return [
        {
            "topic": each.topic,
            "issuer": each.issuer,
            "holder": each.holder,
            "verbs": [name for name, verb in VERBS.items() if each.verbs & verb],
            "not_before": each.not_before_us / 1e6,
            "not_after": each.not_after_us / 1e6,
            "delegate": each.depth,
        }
        for each in map(read_grant, chain)
    ]


_grant_decoder = msgspec.msgpack.Decoder(GrantBody)
_revocation_decoder = msgspec.msgpack.Decoder(RevocationBody)
