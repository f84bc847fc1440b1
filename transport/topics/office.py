"""Everything about topics at one peer of a secured mesh, wired together. Made when its peer opens."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from anabranch.overlay.actions import AnswerCame, QuestionCame, QuestionOver
from anabranch.overlay.errors import AnabranchError, UsageError
from anabranch.security import advertisements
from anabranch.security.advertisements import Advertisement
from anabranch.security.errors import TrustError
from anabranch.security.synopses import Descriptors, Value, check_descriptors
from anabranch.transport.identities import MeshIdentity
from anabranch.transport.shell import Shell
from anabranch.transport.topics import calls
from anabranch.transport.topics.answering import KEPT, Answering
from anabranch.transport.topics.asking import Asked, Asking
from anabranch.transport.topics.calls import Bundle, Creation
from anabranch.transport.topics.desk import Desk
from anabranch.transport.topics.policy import Tdn
from anabranch.transport.topics.query import Query, QueryError, check_query
from anabranch.transport.topics.topic import Topic

if TYPE_CHECKING:
    from anabranch.transport.peer import Peer

TELLING_S = 2.0


class Found(msgspec.Struct, frozen=True):
    """What a search for topics brought."""

    topics: tuple[Topic, ...]
    answered: tuple[str, ...]
    """Discovery nodes that answered, or the creators and others where no node did."""
    unanswered: tuple[str, ...]
    """Who was asked and did not answer."""
    partial: bool
    """Whether somebody had more than it found in time, or than fits into an answer."""
    from_creators: bool
    """Whether no discovery node answered, so that everybody was asked."""


class Office:
    """Asks and answers for one peer."""

    def __init__(
        self, peer: "Peer", shell: Shell, identity: MeshIdentity, tdn: Tdn | None, store_dir: Path | None
    ) -> None:
        self.peer = peer
        self.node = shell.node
        self.desk = Desk(shell, identity, tdn, store_dir)
        self.asking = Asking(self.desk)
        self._answering = Answering(self.desk)
        shell.perform_too(
            {
                QuestionCame: self._answering.asked,
                AnswerCame: self.asking.answered,
                QuestionOver: self.asking.over,
            }
        )

    async def close(self) -> None:
        """The peer closes."""
        await self.asking.close()
        await self._answering.close()
        await self.desk.close()

    async def create(
        self,
        synopsis: str | int | Mapping[str, Value],
        descriptors: Descriptors,
        *,
        synopsis_type: str,
        institution: str,
        lifetime: float,
        restricted: bool,
        sealed: bool,
        discoverers: Sequence[str],
        tdn: str | None,
        tdns: Sequence[str] | None,
        within: float,
    ) -> Topic:
        """See `Peer.create_topic`."""
        desk = self.desk
        until = time.monotonic() + within
        try:
            check_descriptors(descriptors)
            terms, encoded = advertisements.make_terms(
                desk.identity.holder,
                _placeholder(synopsis, synopsis_type),
                descriptors,
                synopsis_type=synopsis_type,
                institution=institution,
                restricted=restricted,
                sealed=sealed,
                discoverers=tuple(discoverers),
                lifetime_s=lifetime,
            )
        except TrustError as error:
            raise UsageError(str(error)) from None
        name, key = await self._chosen(tdn, within)
        raw = msgspec.Raw(msgspec.msgpack.encode(terms))
        asked = msgspec.msgpack.encode(Creation(raw, encoded, desk.identity.signer.credential))
        left = max(0.01, until - time.monotonic())
        answer = await self.asking.ask_one(calls.CREATE, asked, name, left, key)
        try:
            minted = _only(answer, desk, encoded)
            topic = advertisements.accept(minted, terms, name, desk.witnesses, desk.sign, desk.now())
        except TrustError as error:
            desk.refuse(name, error)
            raise AnabranchError(f"discovery node {name!r} made no topic that holds: {error}") from None
        desk.witnesses.meet(desk.identity.signer.credential)
        desk.keep([topic])
        if restricted:
            try:
                desk.rights.hold(topic, ())
            except TrustError as error:
                raise UsageError(f"topic {topic.synopsis!r}: {error}") from None
            desk.node.show_rights(time.monotonic())
            desk.shell.turn()
        desk.counters.add("topics_created")
        await self.advertise(topic, tdns)
        return Topic(self, topic)

    async def advertise(self, topic: Advertisement, tdns: Sequence[str] | None) -> list[str]:
        """Give a topic to discovery nodes; those that keep it."""
        certificates = self.desk.certificates_for([topic.tdn_signature, topic.creator_signature])
        body = msgspec.msgpack.encode(Bundle(certificates, [topic.packed()]))
        return await self.tell_tdns(calls.ADVERTISE, body, tdns)

    async def tell_tdns(self, what: str, body: bytes, tdns: Sequence[str] | None) -> list[str]:
        """Tell discovery nodes, all or these; those that took it, sorted."""
        located = await self.asking.tdns(tdns, TELLING_S)
        if not located:
            return []
        keys = {name: each.key for name, each in located.items()}
        asked = self.asking.ask(what, body, sorted(keys), TELLING_S, keys)
        took = [name async for name, content in asked if content == KEPT]
        self.asking.lost(asked.unanswered)
        return sorted(took)

    async def discover(self, query: Query, *, tdns: Sequence[str] | None, ttl: int, within: float) -> Found:
        """See `Peer.discover`."""
        try:
            check_query(query)
        except QueryError as error:
            raise UsageError(str(error)) from None
        until = time.monotonic() + within
        body = msgspec.msgpack.encode(query)
        located = await self.asking.tdns(tdns, within / 4)
        if located:
            keys = {name: each.key for name, each in located.items()}
            share = within if tdns is not None else within / 2
            asked = self.asking.ask(calls.FIND, body, sorted(keys), share, keys)
            found = await self._gathered(asked, query, from_creators=False)
            self.asking.lost(found.unanswered)
            if found.answered or tdns is not None:
                return found
        elif tdns is not None:
            return Found((), (), tuple(tdns), False, False)
        left = max(0.1, until - time.monotonic())
        asked = self.asking.ask_all(calls.FIND, body, left, awaits_all=True, ttl=ttl)
        return await self._gathered(asked, query, from_creators=True)

    def key_holders(self, topic: str, creator: str) -> list[str]:
        """Who may have a topic's key, its creator first."""
        others = self.desk.rights.holders(topic)
        reachable = self.node.reachable() - {self.desk.me}
        return [
            name for name in (creator, *(each for each in others if each != creator)) if name in reachable
        ]

    async def _gathered(self, asked: Asked, query: Query, *, from_creators: bool) -> Found:
        desk = self.desk
        topics: dict[bytes, Topic] = {}
        answered: list[str] = []
        errors: list[str] = []
        is_partial = False
        async for name, content in asked:
            try:
                for topic in self._believed(name, content, from_creators, errors):
                    topics.setdefault(topic.hash, Topic(self, topic))
                is_partial |= calls.bundle_decoder.decode(content).partial
                answered.append(name)
            except TrustError as error:
                desk.refuse(name, error)
        if errors and not topics and len(errors) == len(answered):
            raise UsageError(errors[0])
        ordered = sorted(topics.values(), key=lambda each: each.synopsis)
        limited = tuple(ordered[: query.limit])
        is_partial |= len(ordered) > len(limited)
        return Found(limited, tuple(sorted(answered)), asked.unanswered, is_partial, from_creators)

    def _believed(
        self, name: str, content: bytes, from_creators: bool, errors: list[str]
    ) -> list[Advertisement]:
        """What holds of an answer."""
        desk = self.desk
        try:
            bundle = calls.bundle_decoder.decode(content)
        except calls.BROKEN:
            raise TrustError("malformed", f"{name!r} answers what makes no sense") from None
        is_node = "tdn" in desk.letters.holder(name).roles
        if not from_creators and not is_node:
            raise TrustError("role", f"{name!r} answers as a discovery node, which it is not")
        if bundle.error:
            errors.append(f"{name}: {bundle.error}")
        for certificate in bundle.certificates:
            desk.witnesses.meet(certificate)
        found = []
        for parts in bundle.topics:
            try:
                topic = Advertisement.unpacked(parts)
                if from_creators and topic.creator != name and not is_node:
                    raise TrustError("role", f"{name!r} answers with a topic of {topic.creator!r}")
                if not topic.may_be_found_by(desk.me):
                    raise TrustError("role", f"{name!r} answers with a topic that is not for {desk.me!r}")
                desk.check(topic, is_vouched=not from_creators)
                found.append(topic)
            except TrustError as error:
                desk.refuse(name, error)
        return found

    async def _chosen(self, tdn: str | None, within: float) -> tuple[str, bytes]:
        """The discovery node that was asked for, else the one that answers first."""
        if tdn is not None:
            located = await self.asking.tdns([tdn], within / 2)
            if tdn not in located:
                raise AnabranchError(f"discovery node {tdn!r} does not answer: gone, or private")
            return tdn, located[tdn].key
        found = await self.asking.locate(within / 2, is_first_enough=True)
        if not found:
            raise AnabranchError(
                "no discovery node answers: start one with `anabranch peer --tdn DIR`, or let a private one "
                "know of this peer"
            )
        return found[0].name, found[0].key


def _placeholder(synopsis: str | int | Mapping[str, Value], synopsis_type: str) -> str:
    if isinstance(synopsis, str):
        return synopsis
    if isinstance(synopsis, Mapping):
        if synopsis_type == "tags":
            return ",".join(f"{key}={value}" for key, value in synopsis.items())
        return msgspec.json.encode(dict(synopsis)).decode()
    return str(synopsis)


def _only(answer: bytes, desk: Desk, descriptors: bytes) -> Advertisement:
    """The one advertisement in an answer to CREATE."""
    try:
        bundle = calls.bundle_decoder.decode(answer)
    except calls.BROKEN:
        raise TrustError("malformed", "an answer that makes no sense") from None
    for certificate in bundle.certificates:
        desk.witnesses.meet(certificate)
    if len(bundle.topics) != 1:
        raise TrustError("malformed", f"{len(bundle.topics)} topics where one was asked for")
    parts = bundle.topics[0]
    return Advertisement.unpacked([*parts[:3], descriptors])
