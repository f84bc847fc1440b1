"""What one peer knows about topics: its letters, its rights, its store, the keys of topics.

Shared by who asks (`asking.py`), who answers (`answering.py`) and the public classes.
"""

import asyncio
import sqlite3
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from anabranch.overlay.errors import StoreError, UsageError
from anabranch.security import advertisements
from anabranch.security.advertisements import Advertisement
from anabranch.security.errors import TrustError
from anabranch.security.grants import Chain
from anabranch.security.letters import Correspondence
from anabranch.security.sealing import SealingKey, TopicKey
from anabranch.transport.identities import MeshIdentity
from anabranch.transport.shell import Shell
from anabranch.transport.topics.calls import Handing, handing_decoder
from anabranch.transport.topics.policy import Tdn
from anabranch.transport.topics.store import FILE_NAME, TopicStore
from anabranch.transport.topics.worker import Workers

EXPIRE_INTERVAL_S = 30.0
CHECKED_MAX = 16_384
PER_CREATOR_MAX = 64
"""Rights to topics of one creator that a peer uses: nobody fills its table alone."""
KEYS_MAX = 4096
"""Keys of topics that are kept, older ones included: what was closed with them can still be read."""

log = structlog.get_logger("anabranch")


class Desk:
    """Opened with its peer."""

    def __init__(self, shell: Shell, identity: MeshIdentity, tdn: Tdn | None, store_dir: Path | None) -> None:
        self.me = str(identity.name)
        self.shell = shell
        self.node = shell.node
        self.identity = identity
        self.tdn = tdn
        self.counters = shell.node.counters
        self.rights = identity.rights
        self.witnesses = identity.rights.witnesses
        self.letters = Correspondence(self.me, identity.signer, identity.verifier)
        self.key = SealingKey()
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._keys: OrderedDict[tuple[str, int], TopicKey] = OrderedDict()
        self._checked: OrderedDict[bytes, bool] = OrderedDict()
        self._checked_with: object = None
        """The revocations that were known then."""
        self._timer: asyncio.TimerHandle | None = None
        place = Path(tdn.store) if tdn is not None else store_dir
        if tdn is not None and "tdn" not in identity.roles():
            raise UsageError(
                f"tdn: the certificate of {self.me!r} is not for a discovery node: issue it with "
                "`anabranch keys issue … --tdn`"
            )
        self._place = place
        self._store: TopicStore | None = None
        self._workers: Workers | None = None
        if place is not None and (tdn is not None or (place / FILE_NAME).exists()):
            self._load(self.store)
        if tdn is not None:
            if not tdn.private:
                self.node.serve("tdn", time.monotonic())
            self._expire()

    @property
    def store(self) -> TopicStore:
        """Made when it is first needed; temporary where the peer has no place for it."""
        if self._store is None:
            if self._place is None:
                self._temporary = tempfile.TemporaryDirectory(prefix="anabranch-topics-")
            place = self._place if self._place is not None else Path(self._temporary.name)  # type: ignore[union-attr]
            self._store = TopicStore(place / FILE_NAME)
        return self._store

    @property
    def has_store(self) -> bool:
        """Whether anything was kept yet."""
        return self._store is not None

    @property
    def workers(self) -> Workers:
        """The processes that evaluate queries."""
        if self._workers is None:
            self._workers = Workers(self.store.path, self.counters)
        return self._workers

    async def close(self) -> None:
        """The peer closes."""
        if self._timer is not None:
            self._timer.cancel()
        if self._workers is not None:
            await self._workers.close()
        if self._store is not None:
            self._store.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def now(self) -> float:
        """By the clock of this host."""
        return time.time()

    def sign(self, purpose: bytes, payload: bytes) -> bytes:
        """A statement of this peer."""
        self.witnesses.meet(self.identity.signer.credential)
        return self.identity.signer.sign_as(purpose, payload)

    def check(self, topic: Advertisement, *, is_vouched: bool = False) -> None:
        """TrustError unless an advertisement holds; remembered by its hash."""
        revoked = self.identity.verifier.trust.revoked
        if revoked is not self._checked_with:
            self._checked.clear()
            self._checked_with = revoked
        known = self._checked.get(topic.hash)
        if known is not None and (known or is_vouched) and topic.is_current(self.now()):
            return
        advertisements.check(topic, self.witnesses, self.now(), is_vouched=is_vouched)
        self._checked[topic.hash] = not is_vouched
        if len(self._checked) > CHECKED_MAX:
            self._checked.popitem(last=False)

    def is_revoked(self, topic: Advertisement) -> bool:
        """Whether a certificate that made it was revoked since; they are at hand."""
        trust = self.identity.verifier.trust
        signatures = (topic.tdn_signature, topic.creator_signature)
        return any(trust.is_revoked(self.witnesses.holder(each)) for each in signatures)

    def certificates_for(self, signatures: Iterable[bytes]) -> list[bytes]:
        """What others need to check these; those that are not in memory are read from the store."""
        wanted = list(signatures)
        for signature in wanted:
            if not self.witnesses.knows(signature) and self.has_store:
                found = self.store.certificate(signature[:16])
                if found is not None:
                    self.witnesses.meet(found)
        return self.witnesses.certificates(wanted)

    def keep(self, topics: list[Advertisement]) -> None:
        """Put advertisements that were checked into the store."""
        signatures = [each for topic in topics for each in (topic.tdn_signature, topic.creator_signature)]
        certificates = self.certificates_for(signatures)
        self.store.keep((topic, certificates) for topic in topics)

    def hand_over(self, topic: Advertisement, chain: Chain) -> bytes:
        """A right as it travels, and as a file."""
        signatures = [topic.tdn_signature, topic.creator_signature, *(each.signature for each in chain)]
        return msgspec.msgpack.encode(Handing(self.certificates_for(signatures), topic.packed(), list(chain)))

    def take_over(self, packed: bytes) -> Advertisement:
        """Use a right that this peer was handed; TrustError unless it holds."""
        try:
            handing = handing_decoder.decode(packed)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise TrustError("malformed", "not a grant of a topic") from None
        for certificate in handing.certificates:
            self.witnesses.meet(certificate)
        topic = Advertisement.unpacked(handing.topic)
        used = [self.rights.known[each].creator for each in self.rights.own if each != topic.id]
        if topic.creator != self.me and used.count(topic.creator) >= PER_CREATOR_MAX:
            raise TrustError("malformed", f"{PER_CREATOR_MAX} grants of {topic.creator!r} are in use already")
        self.rights.hold(topic, tuple(handing.chain))
        if self._place is not None:
            with suppress(StoreError):
                self.store.keep_grant(topic.id, packed)
        self.node.show_rights(time.monotonic())
        return topic

    def put_key(self, key: TopicKey) -> TopicKey:
        """Remember a topic's key."""
        self._keys[key.topic, key.made_at_us] = key
        if len(self._keys) > KEYS_MAX:
            self._keys.popitem(last=False)
        return key

    def old_key(self, topic: str, made_at_us: int) -> TopicKey | None:
        """The key that something was closed with."""
        return self._keys.get((topic, made_at_us))

    def current_key(self, topic: Advertisement) -> TopicKey | None:
        """A key that nobody holds who was revoked; the creator makes one where there is none."""
        floor = self.rights.key_floor_us(topic.id)
        times = [at for known, at in self._keys if known == topic.id]
        if times and max(times) > floor:
            return self._keys[topic.id, max(times)]
        if topic.creator != self.me:
            return None
        return self.put_key(TopicKey.make(topic.id, max(int(self.now() * 1e6), floor + 1)))

    def refuse(self, who: str, error: TrustError) -> None:
        """Count and log what did not hold."""
        self.counters.add("topics_refused")
        self.identity.refused(who, str(error))

    def _load(self, store: TopicStore) -> None:
        """Take up what was kept before: own topics, rights, revocations."""
        store.expire(self.now())
        for topic in store.by_creator(self.me):
            if topic.body.terms.restricted:
                with suppress(TrustError):
                    self.certificates_for([topic.tdn_signature, topic.creator_signature])
                    self.rights.hold(topic, ())
        for packed in store.grants():
            with suppress(TrustError):
                self.take_over(packed)
        for topic_id, certificate, revocation in store.revocations():
            with suppress(TrustError):
                self.witnesses.meet(certificate)
                for topic in store.by_topic(topic_id)[:1]:
                    self.certificates_for([topic.tdn_signature, topic.creator_signature])
                    self.rights.introduce(topic)
                self.rights.revoke(revocation)
        self.node.show_rights(time.monotonic())

    def _expire(self) -> None:
        try:
            gone = self.store.expire(self.now())
            if gone:
                self.counters.add("topics_expired", gone)
        except sqlite3.Error as error:
            log.error("topics cannot be expired", error=str(error))
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(EXPIRE_INTERVAL_S, self._expire)
