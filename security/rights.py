"""Who may publish to and subscribe to which restricted topic, by what peers showed and creators revoked.

The core asks on every action. What was checked once is known by its hash. Nothing known means: denied.
"""

from collections.abc import Callable

import msgspec

from anabranch.security import advertisements, grants
from anabranch.security.advertisements import Advertisement
from anabranch.security.errors import TrustError
from anabranch.security.grants import Chain, Grant, Revocation, Right
from anabranch.security.trust import SKEW_S
from anabranch.security.witnesses import Witnesses

TOPICS_MAX = 4096
"""Restricted topics known here."""
SHOWN_MAX = 512
"""Topics whose rights one peer may show."""
REVOKED_MAX = 256
"""Holders that were revoked, per topic."""
REVOCATIONS_MAX = 16_384
"""The same, in all."""
LOOK_INTERVAL_S = 60.0
CERTIFICATE_BYTES = 500
OWN_MAX_BYTES = 128 * 1024
"""What the rights that one peer uses may take in its record."""
SHOWN_MAX_BYTES = 240 * 1024
"""With what was revoked: the latest revocations go first, the rest is left to other peers."""
_BROKEN = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError)


class Shown(msgspec.Struct, array_like=True):
    """Body of a RIGHTS record: everything needed to check it comes along."""

    certificates: list[bytes]
    topics: list[list[bytes]]
    """Advertisements without descriptors."""
    chains: list[list[Grant]]
    revocations: list[Revocation]


class RightsTable:
    """The rights of all peers of a secured mesh."""

    is_open = False

    def __init__(
        self,
        me: str,
        witnesses: Witnesses,
        clock: Callable[[], float],
        on_refusal: Callable[[str, str], None] | None = None,
    ) -> None:
        self.version = 0
        self.witnesses = witnesses
        self.known: dict[str, Advertisement] = {}
        """Restricted topics by id."""
        self.own: dict[str, Chain] = {}
        """Grants that this peer holds, by topic; empty chains where it is the creator."""
        self._me = me
        self._clock = clock
        self._on_refusal = on_refusal or (lambda _, __: None)
        self._rights: dict[str, dict[str, Right]] = {}
        """By holder, then by topic."""
        self._checked: dict[bytes, Right] = {}
        self._revoked: dict[str, dict[str, tuple[float, Revocation]]] = {}
        self._next_look = 0.0

    def may(self, peer: str, verb: int, topic: str) -> bool:
        """See `Rights`."""
        known = self.known.get(topic)
        if known is None:
            return False
        now = self._clock()
        if not known.is_current(now):
            return False
        if known.creator == peer:
            return True
        right = self._rights.get(peer, {}).get(topic)
        return right is not None and right.allows(verb, now) and not self._is_revoked(right)

    def right(self, topic: str) -> Right | None:
        """What this peer was granted; None for nothing that holds now."""
        right = self._rights.get(self._me, {}).get(topic)
        return None if right is None or self._is_revoked(right) else right

    def holders(self, topic: str) -> list[str]:
        """Who holds rights to a topic now, its creator left out; sorted."""
        now = self._clock()
        return sorted(
            holder
            for holder, held in self._rights.items()
            if (right := held.get(topic)) is not None
            and right.not_after >= now
            and not self._is_revoked(right)
        )

    def key_floor_us(self, topic: str) -> int:
        """A key of the topic has to be made after this: somebody was revoked then."""
        return int(max((at for at, _ in self._revoked.get(topic, {}).values()), default=0.0) * 1e6)

    def introduce(self, advertisement: Advertisement) -> None:
        """Know a restricted topic; TrustError unless its advertisement holds."""
        topic = advertisement.id
        known = self.known.get(topic)
        if known is not None and known.raw == advertisement.raw:
            return
        advertisements.check(advertisement, self.witnesses, self._clock())
        if len(self.known) >= TOPICS_MAX:
            self._make_room()
        self.known[topic] = advertisement
        self.version += 1

    def hold(self, advertisement: Advertisement, chain: Chain) -> Right | None:
        """Use a grant, or (with an empty chain) one's own topic, from now on; TrustError unless it holds."""
        self.introduce(advertisement)
        topic = advertisement.id
        right = None
        if chain:
            right = self._check_chain(list(chain), self._me)
        elif advertisement.creator != self._me:
            raise TrustError("role", f"{self._me!r} did not create {advertisement.synopsis!r}")
        size = sum(map(self._size, self.own.items())) + self._size((topic, chain))
        if topic not in self.own and (len(self.own) >= SHOWN_MAX or size > OWN_MAX_BYTES):
            raise TrustError("malformed", f"{len(self.own)} restricted topics are in use: use several peers")
        self.own[topic] = chain
        if right is not None:
            self._rights.setdefault(self._me, {})[topic] = right
        self.version += 1
        return right

    def revoke(self, revocation: Revocation) -> bool:
        """Take a revocation; whether it was news. TrustError unless the creator of a known topic said so."""
        body = grants.read_revocation(revocation)
        known = self.known.get(body.topic)
        if known is None:
            raise TrustError("foreign", "a revocation for a topic that is not known here")
        held = self._revoked.get(body.topic, {}).get(body.holder)
        if held is not None and held[1] == revocation:
            return False
        holder, at = grants.check_revocation(revocation, known, self.witnesses, self._clock())
        if held is not None and held[0] >= at:
            return False
        by_holder = self._revoked.setdefault(body.topic, {})
        in_all = sum(map(len, self._revoked.values()))
        if held is None and (len(by_holder) >= REVOKED_MAX or in_all >= REVOCATIONS_MAX):
            raise TrustError(
                "malformed", f"{len(by_holder)} holders of this topic were revoked: advertise a new topic"
            )
        by_holder[holder] = (at, revocation)
        self.version += 1
        return True

    def take(self, origin: str, body: bytes) -> bool:
        """See `Rights`."""
        try:
            try:
                shown = _shown_decoder.decode(body)
            except _BROKEN:
                raise TrustError("malformed", "not a record of rights") from None
            if len(shown.topics) > SHOWN_MAX + TOPICS_MAX or len(shown.chains) > SHOWN_MAX:
                raise TrustError("malformed", "rights to too many topics")
            for certificate in shown.certificates:
                self.witnesses.meet(certificate)
            for parts in shown.topics:
                self.introduce(Advertisement.unpacked(parts))
            for revocation in shown.revocations:
                self.revoke(revocation)
            found: dict[str, Right] = {}
            for chain in shown.chains:
                right = self._check_chain(chain, origin)
                found[right.topic] = right
        except TrustError as error:
            self._on_refusal(origin, str(error))
            return False
        if found != self._rights.get(origin, {}) and origin != self._me:
            self._rights[origin] = found
            self._next_look = 0.0
            self.version += 1
        return True

    def forget(self, origin: str) -> None:
        """See `Rights`."""
        if origin != self._me and origin in self._rights:
            del self._rights[origin]
            self.version += 1

    def distrust(self) -> None:
        """See `Rights`."""
        self._checked.clear()
        self._rights.clear()
        now = self._clock()
        for topic, each in list(self.known.items()):
            try:
                advertisements.check(each, self.witnesses, now)
            except TrustError as error:
                self._on_refusal(each.creator, str(error))
                self._forget_topic(topic)
        for topic, chain in list(self.own.items()):
            try:
                self.hold(self.known[topic], chain)
            except TrustError as error:
                self._on_refusal(self._me, str(error))
                del self.own[topic]
        self.version += 1

    def expire(self) -> None:
        """See `Rights`."""
        now = self._clock()
        if now < self._next_look:
            return
        for topic in [topic for topic, each in self.known.items() if now > each.not_after]:
            self._forget_topic(topic)
        held = [right for each in self._rights.values() for right in each.values()]
        turns = [at for right in held for at in (right.not_before - SKEW_S, right.not_after)]
        turns += [each.not_after for each in self.known.values()]
        self._next_look = min([now + LOOK_INTERVAL_S, *(at for at in turns if at > now)])
        self.version += 1

    def shown(self) -> bytes:
        """See `Rights`."""
        revoked = [(at, topic, each) for topic, held in self._revoked.items() for at, each in held.values()]
        if not self.own and not revoked:
            return b""
        topics = set(self.own)
        size = sum(map(self._size, self.own.items()))
        revocations = []
        for _, topic, each in sorted(revoked, key=lambda one: one[0], reverse=True):
            size += len(each.raw) + len(each.signature) + (0 if topic in topics else self._size((topic, ())))
            if size > SHOWN_MAX_BYTES:
                break
            topics.add(topic)
            revocations.append(each)
        told = [self.known[topic] for topic in sorted(topics)]
        chains = [list(chain) for _, chain in sorted(self.own.items()) if chain]
        signatures = [each for ad in told for each in (ad.tdn_signature, ad.creator_signature)]
        signatures += [link.signature for chain in chains for link in chain]
        signatures += [each.signature for each in revocations]
        certificates = self.witnesses.certificates(signatures)
        parts = [each.packed(whole=False) for each in told]
        return msgspec.msgpack.encode(Shown(certificates, parts, chains, revocations))

    def _size(self, used: tuple[str, Chain]) -> int:
        """About what a right takes in a record, its certificates included."""
        topic, chain = used
        links = sum(len(each.raw) + len(each.signature) + CERTIFICATE_BYTES for each in chain)
        return len(self.known[topic].raw) + 300 + CERTIFICATE_BYTES + links

    def _forget_topic(self, topic: str) -> None:
        del self.known[topic]
        self._revoked.pop(topic, None)
        self.own.pop(topic, None)
        for held in self._rights.values():
            held.pop(topic, None)

    def _make_room(self) -> None:
        used = {topic for held in self._rights.values() for topic in held} | {*self.own, *self._revoked}
        idle = next((topic for topic in self.known if topic not in used), None)
        if idle is None:
            raise TrustError("malformed", f"{TOPICS_MAX} restricted topics are in use: no room for another")
        self._forget_topic(idle)

    def _check_chain(self, chain: list[Grant], holder: str) -> Right:
        body = grants.read_grant(chain[-1]) if chain else None
        known = self.known.get(body.topic) if body else None
        if body is None or known is None:
            raise TrustError("malformed", "a grant for a topic that is not known here")
        if body.holder != holder:
            raise TrustError("role", f"{holder!r} shows a grant of {body.holder!r}")
        key = b"".join(link.hash for link in chain)
        right = self._checked.get(key)
        if right is None:
            right = grants.check(tuple(chain), known, self.witnesses, self._clock())
            if len(self._checked) >= TOPICS_MAX:
                del self._checked[next(iter(self._checked))]
            self._checked[key] = right
        return right

    def _is_revoked(self, right: Right) -> bool:
        revoked = self._revoked.get(right.topic)
        if not revoked:
            return False
        return any(
            (found := revoked.get(holder)) is not None and granted_at <= found[0]
            for holder, granted_at in right.holders
        )


_shown_decoder = msgspec.msgpack.Decoder(Shown)
