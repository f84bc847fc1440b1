"""A topic as applications hold it: its publishers, its subscriptions, and whom it is granted to."""

import time
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from anabranch.overlay.errors import AnabranchError, UsageError
from anabranch.security import advertisements, grants
from anabranch.security.advertisements import Advertisement
from anabranch.security.entitlement import PUBLISH, SUBSCRIBE
from anabranch.security.errors import TrustError
from anabranch.security.sealing import TopicKey, key_time
from anabranch.security.synopses import attributes_of, topic_of
from anabranch.transport.message import Message
from anabranch.transport.publisher import Publisher
from anabranch.transport.subscription import Subscription
from anabranch.transport.topics import calls
from anabranch.transport.topics.calls import KeyWanted, Revoking

if TYPE_CHECKING:
    from anabranch.transport.topics.office import Office

HANDING_S = 2.0
KEY_S = 2.0
_PLAIN, _VALUE = b"b", b"v"


class Topic:
    """One advertised topic, checked."""

    def __init__(self, office: "Office", advertisement: Advertisement) -> None:
        self._office = office
        self.advertisement = advertisement
        terms = advertisement.body.terms
        self.id = advertisement.id
        """UUID and hash of the terms."""
        self.synopsis = advertisement.synopsis
        self.creator = advertisement.creator
        self.restricted = terms.restricted
        self.sealed = terms.sealed
        self.name = topic_of(terms.synopsis_type, self.synopsis, self.id, self.restricted)
        """The topic to publish and subscribe to."""
        self.attributes: Mapping[str, Any] = attributes_of(terms.synopsis_type, self.synopsis)
        """What its publications carry, for filters: tags and properties of the synopsis."""

    def __repr__(self) -> str:
        return f"Topic({self.synopsis!r}, creator={self.creator!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topic) and other.advertisement.hash == self.advertisement.hash

    def __hash__(self) -> int:
        return hash(self.advertisement.hash)

    def as_dict(self) -> dict[str, Any]:
        """Everything that is advertised, in JSON types."""
        return {**advertisements.readable(self.advertisement), "name": self.name}

    async def publisher(self, **options: Any) -> "TopicPublisher":
        """A publisher of the topic; a restricted one needs a grant. Options as for `Peer.publisher`."""
        self._use()
        inner = await self._office.peer.publisher(self.name, **options)
        return TopicPublisher(self, inner)

    def subscribe(self, **options: Any) -> "TopicSubscription":
        """A subscription to the topic; the options are those of `Peer.subscribe`."""
        self._use()
        if not self._office.node.may_subscribe(self.name):
            raise UsageError(
                f"topic {self.synopsis!r}: restricted, and this peer has no right to subscribe to it; ask "
                f"{self.creator!r} for a grant and give it to `use_grant`"
            )
        if self.sealed and options.get("callback") is not None:
            raise UsageError(f"callback for {self.synopsis!r}: payloads are sealed; iterate instead")
        return TopicSubscription(self, self._office.peer.subscribe(self.name, **options))

    async def grant(
        self,
        holder: str,
        *,
        publish: bool = False,
        subscribe: bool = False,
        until: float | None = None,
        delegate: int = 0,
    ) -> "GrantGiven":
        """Let a peer publish, subscribe or both. It is handed over at once if the peer can be reached.

        `until`: seconds since 1970; by default as long as one's own right. `delegate`: how many further
        links may follow: 1 lets the holder grant what it has, to peers that may not grant it on.
        """
        desk = self._office.desk
        self._needs_restriction("grant")
        chain: grants.Chain = ()
        ends, begins = self.advertisement.not_after, desk.now()
        try:
            if self.creator == desk.me:
                desk.rights.hold(self.advertisement, ())
            else:
                right = desk.rights.right(self.id)
                if right is None or right.depth < 1:
                    raise TrustError("role", f"{desk.me!r} may not grant it on")
                chain = desk.rights.own[self.id]
                ends, begins = right.not_after, max(begins, right.not_before)
            verbs = PUBLISH * publish + SUBSCRIBE * subscribe
            given = grants.issue(
                self.id,
                desk.me,
                holder,
                desk.sign,
                verbs=verbs,
                not_before=begins,
                not_after=ends if until is None else until,
                depth=delegate,
                parent=chain,
            )
            grants.check(given, self.advertisement, desk.witnesses, desk.now())
        except TrustError as error:
            raise UsageError(f"grant for {holder!r} to {self.synopsis!r}: {error}") from None
        packed = desk.hand_over(self.advertisement, given)
        is_handed = False
        if holder in self._office.node.reachable():
            try:
                await self._office.asking.ask_one(calls.GRANT, packed, holder, HANDING_S)
                is_handed = True
            except AnabranchError:
                is_handed = False
        return GrantGiven(holder, packed, is_handed, grants.readable(given)[-1])

    async def revoke(self, holder: str) -> list[str]:
        """Take back what a peer was granted, and what it granted others; the discovery nodes that know.

        In effect here at once, elsewhere as soon as the news has spread. The topic's key is replaced.
        """
        desk = self._office.desk
        self._needs_restriction("revoke")
        if self.creator != desk.me:
            raise UsageError(f"revoke {holder!r} from {self.synopsis!r}: only {self.creator!r} can")
        word = grants.revoke(self.id, desk.me, holder, desk.sign)
        try:
            desk.rights.hold(self.advertisement, ())
            desk.rights.revoke(word)
        except TrustError as error:
            raise UsageError(f"revoke {holder!r} from {self.synopsis!r}: {error}") from None
        desk.store.keep_revocation(self.id, holder, word, desk.identity.signer.credential)
        desk.node.show_rights(time.monotonic())
        desk.shell.turn()
        signatures = (*self.advertisement.packed()[1:3], word.signature)
        packed = Revoking(desk.certificates_for(signatures), self.advertisement.packed(whole=False), word)
        return await self._office.tell_tdns(calls.REVOKE, msgspec.msgpack.encode(packed), None)

    async def advertise(self, tdns: list[str] | None = None) -> list[str]:
        """Give it to discovery nodes, all or these; those that keep it."""
        return await self._office.advertise(self.advertisement, tdns)

    async def key(self, *, made_at_us: int = 0) -> TopicKey:
        """The topic's present key, or the one of that time; AnabranchError if nobody gives it."""
        desk = self._office.desk
        known = desk.old_key(self.id, made_at_us) if made_at_us else desk.current_key(self.advertisement)
        if known is not None:
            return known
        body = msgspec.msgpack.encode(KeyWanted(self.id, made_at_us, bool(made_at_us)))
        for name in self._office.key_holders(self.id, self.creator):
            try:
                answer = await self._office.asking.ask_one(calls.KEY, body, name, KEY_S)
                given = calls.key_given_decoder.decode(answer)
            except (AnabranchError, *calls.BROKEN):
                continue
            floor = 0 if made_at_us else desk.rights.key_floor_us(self.id)
            if made_at_us in (0, given.made_at_us) and given.made_at_us > floor:
                return desk.put_key(TopicKey(self.id, given.made_at_us, given.secret))
        raise AnabranchError(f"no key of {self.synopsis!r}: its creator, or another holder, has to be there")

    def _use(self) -> None:
        """Show the right of a creator, which needs no grant."""
        desk = self._office.desk
        if self.restricted and self.creator == desk.me and self.id not in desk.rights.own:
            try:
                desk.rights.hold(self.advertisement, ())
            except TrustError as error:
                raise UsageError(f"topic {self.synopsis!r}: {error}") from None
            desk.node.show_rights(time.monotonic())
            desk.shell.turn()

    def _needs_restriction(self, what: str) -> None:
        if not self.restricted:
            raise UsageError(f"{what}: topic {self.synopsis!r} is not restricted, everybody may use it")


class GrantGiven(msgspec.Struct, frozen=True):
    """A grant that was made."""

    holder: str
    packed: bytes
    """For `use_grant` at the holder's peer."""
    handed: bool
    """Whether the holder's peer has it already."""
    terms: dict[str, Any]


class TopicPublisher:
    """Publishes to one topic: its attributes go along, and payloads are sealed if the topic is."""

    def __init__(self, topic: Topic, inner: Publisher) -> None:
        self.topic = topic
        self._inner = inner

    async def put(self, payload: object, *, attributes: Mapping[str, object] | None = None) -> None:
        """Publish."""
        if self.topic.sealed:
            payload = (await self.topic.key()).close(_closed(payload))
        carried = {**self.topic.attributes, **(attributes or {})}
        if carried:
            await self._inner.put(payload, attributes=carried)
        else:
            await self._inner.put(payload)

    def close(self) -> None:
        """Nothing more is put."""
        self._inner.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class TopicSubscription:
    """Messages of one topic; those that do not open are counted (`payloads_unreadable`) and left out."""

    def __init__(self, topic: Topic, inner: Subscription) -> None:
        self.topic = topic
        self._inner = inner

    @property
    def pending(self) -> int:
        """Messages that wait."""
        return self._inner.pending

    async def receive(self, timeout: float | None = None) -> Message:
        """The next message; TimeoutError when none comes in time."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            message = await self._opened(await self._inner.receive(left))
            if message is not None:
                return message

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Messages as they come, until it is closed."""
        async for message in self._inner:
            opened = await self._opened(message)
            if opened is not None:
                yield opened

    def close(self) -> None:
        """Want nothing more."""
        self._inner.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _opened(self, message: Message) -> Message | None:
        if not self.topic.sealed:
            return message
        office = self.topic._office  # noqa: SLF001 - its own
        try:
            payload = message.payload
            if not isinstance(payload, bytes) or key_time(payload) < 0:
                raise TrustError("malformed", "not sealed")
            key = await self.topic.key(made_at_us=key_time(payload))
            return msgspec.structs.replace(message, payload=_plain(key.open(payload)))
        except (TrustError, AnabranchError, msgspec.MsgspecError) as error:
            office.desk.counters.add("payloads_unreadable")
            office.desk.identity.refused(message.origin, f"payload of {self.topic.synopsis!r}: {error}")
            return None


def _closed(payload: object) -> bytes:
    if isinstance(payload, bytes | bytearray | memoryview):
        return _PLAIN + bytes(payload)
    try:
        return _VALUE + msgspec.msgpack.encode(payload)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(f"payload of type {type(payload).__name__} cannot be encoded ({error})") from None


def _plain(content: bytes) -> object:
    return content[1:] if content[:1] == _PLAIN else msgspec.msgpack.decode(content[1:])
