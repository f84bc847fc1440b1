"""What a peer answers when it is asked about topics: as a discovery node, as a creator, as a holder of keys.

Whoever is not entitled gets silence, which looks like a peer that has nothing to say.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Coroutine
from typing import TypeVar

import msgspec
import structlog

from anabranch.overlay.actions import QuestionCame
from anabranch.overlay.errors import StoreError
from anabranch.security import advertisements
from anabranch.security.advertisements import Advertisement, Terms
from anabranch.security.entitlement import PUBLISH, SUBSCRIBE
from anabranch.security.errors import TrustError
from anabranch.security.grants import read_revocation
from anabranch.security.letters import ANYBODY
from anabranch.security.sealing import digest
from anabranch.transport.topics import calls
from anabranch.transport.topics.calls import Bundle, Call, Here, KeyGiven
from anabranch.transport.topics.desk import Desk
from anabranch.transport.topics.query import FoundRows, Query, QueryError

REPLY_MAX_BYTES = 768 * 1024
SMALL_STORE = 2000
"""With so few topics, a search for a text is done at once, unless it takes longer than the next figure."""
SMALL_DEADLINE_S = 0.01
TASKS_MAX = 256
KEPT, PASSED = b"kept", b"passed"
"""Answers to ADVERTISE: the topic is kept, or does not belong here."""

log = structlog.get_logger("anabranch")
T = TypeVar("T")
Answer = bytes | Coroutine[None, None, bytes | None] | None


class Answering:
    """Carries out `QuestionCame`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._by_call: dict[str, Callable[[str, Call], Answer]] = {
            calls.CREATE: self._create,
            calls.ADVERTISE: self._advertise,
            calls.FIND: self._find,
            calls.KEY: self._key,
            calls.GRANT: self._grant,
            calls.REVOKE: self._revoke,
        }

    def asked(self, action: QuestionCame) -> None:
        """Another peer asks."""
        if self._is_closed:
            return
        desk, asker = self._desk, action.asker
        try:
            context = calls.asking_context(action.token)
            to = ANYBODY if action.is_flooded else desk.me
            is_sealed = action.letter[:1] == b"s"
            content = desk.letters.read(asker, to, context, action.letter, desk.key if is_sealed else None)
            call = _decoded(calls.call_decoder, content)
            if call.what == calls.LOCATE:
                answer: Answer = self._locate(asker)
            elif action.is_flooded:
                answer = self._find_own(asker, call) if call.what == calls.FIND else None
            else:
                handle = self._by_call.get(call.what)
                answer = handle(asker, call) if handle is not None else None
        except TrustError as error:
            desk.refuse(asker, error)
            return
        except (StoreError, sqlite3.Error, OSError) as error:
            self._failed(error)
            return
        if isinstance(answer, bytes):
            self._answer(action, call, answer)
        elif answer is not None:
            self._later(action, call, answer)

    async def close(self) -> None:
        """No further answers."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _answer(self, action: QuestionCame, call: Call, content: bytes) -> None:
        desk = self._desk
        context = calls.answering_context(digest(action.letter))
        try:
            letter = desk.letters.write(action.asker, context, content, call.reply_key)
        except TrustError as error:
            desk.refuse(action.asker, error)
            return
        desk.node.answer(action.asker, action.token, letter, time.monotonic())
        desk.shell.turn_soon()

    def _later(self, action: QuestionCame, call: Call, answer: Coroutine[None, None, bytes | None]) -> None:
        async def wait() -> None:
            try:
                content = await answer
            except TrustError as error:
                self._desk.refuse(action.asker, error)
                return
            except (StoreError, sqlite3.Error) as error:
                self._failed(error)
                return
            if content is not None and not self._desk.shell.gate.shut:
                self._answer(action, call, content)

        if len(self._tasks) >= TASKS_MAX:
            answer.close()
            self._desk.counters.add("queries_refused")
            return
        task = asyncio.get_running_loop().create_task(wait())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _failed(self, error: Exception) -> None:
        """Our own store is in trouble: silence, and a line in the log."""
        self._desk.counters.add("queries_refused")
        log.error("topics cannot be kept or read", error=str(error))

    # As a discovery node

    def _locate(self, asker: str) -> bytes | None:
        tdn = self._desk.tdn
        if tdn is None or not tdn.answers(asker):
            return None
        return msgspec.msgpack.encode(Here(self._desk.key.public, tdn.private))

    def _create(self, asker: str, call: Call) -> bytes | None:
        desk = self._desk
        if desk.tdn is None or not desk.tdn.answers(asker):
            return None
        creation = _decoded(calls.creation_decoder, call.body)
        terms = _decoded(_terms_decoder, bytes(creation.terms))
        holder = desk.witnesses.meet(creation.certificate)
        desk.identity.verifier.trust.check(holder, desk.now())
        if (terms.creator, holder.name) != (asker, asker) or terms.domain != desk.identity.domain:
            raise TrustError("role", f"{asker!r} asks for a topic of {terms.creator!r}")
        if holder.fingerprint != terms.creator_certificate:
            raise TrustError("malformed", f"{asker!r} asks for a topic with another certificate")
        minted = advertisements.mint(terms, creation.descriptors, desk.me, desk.sign, desk.now())
        desk.counters.add("topics_minted")
        certificates = desk.certificates_for([minted.tdn_signature])
        return msgspec.msgpack.encode(Bundle(certificates, [minted.packed(whole=False)]))

    def _advertise(self, asker: str, call: Call) -> bytes | None:
        desk = self._desk
        if desk.tdn is None or not desk.tdn.answers(asker):
            return None
        bundle = _decoded(calls.bundle_decoder, call.body)
        for certificate in bundle.certificates:
            desk.witnesses.meet(certificate)
        if len(bundle.topics) != 1:
            raise TrustError("malformed", f"{asker!r} advertises {len(bundle.topics)} topics at a time")
        topic = Advertisement.unpacked(bundle.topics[0])
        desk.check(topic)
        if not topic.descriptors:
            raise TrustError("malformed", f"{asker!r} advertises {topic.synopsis!r} without descriptors")
        if not desk.tdn.keeps(topic):
            return PASSED
        if len(desk.store) >= desk.tdn.topics_max:
            desk.counters.add("topics_no_room")
            return PASSED
        self._note_conflict(topic)
        try:
            desk.keep([topic])
        except StoreError as error:
            desk.counters.add("topics_no_room")
            desk.identity.refused(asker, str(error))
            return None
        desk.counters.add("topics_kept")
        return KEPT

    def _note_conflict(self, topic: Advertisement) -> None:
        """Two topics with one UUID are two topics all the same; somebody cheats, and that shall be seen."""
        uuid = topic.body.uuid
        for other in self._desk.store.by_uuid(advertisements.uuid_text(uuid)):
            if other.raw != topic.raw:
                self._desk.counters.add("topics_conflicting")
                who = f"{topic.body.tdn}, {topic.creator}"
                self._desk.identity.refused(who, f"a second topic with the UUID of {other.synopsis!r}")

    def _find(self, asker: str, call: Call) -> Answer:
        desk = self._desk
        if desk.tdn is None or not desk.tdn.answers(asker):
            return None
        query = _decoded(calls.query_decoder, call.body)
        return self._search(query, asker, is_own=False)

    # As a creator and a holder

    def _find_own(self, asker: str, call: Call) -> Answer:
        """The asker found no discovery node: creators answer for their own topics, others that they have
        none, a node that it missed for what it keeps."""
        desk = self._desk
        query = _decoded(calls.query_decoder, call.body)
        if not desk.has_store:
            return msgspec.msgpack.encode(Bundle([], []))
        is_missed = desk.tdn is not None and desk.tdn.answers(asker)
        return self._search(query, asker, is_own=not is_missed)

    async def _search(self, query: Query, asker: str, *, is_own: bool) -> bytes | None:
        desk = self._desk
        is_owner = asker == desk.me
        now = desk.now()
        found: FoundRows | None = None
        try:
            if query.by == "string" and len(desk.store) <= SMALL_STORE:
                found = desk.store.find(query, asker, is_owner, now, SMALL_DEADLINE_S)
            if found is None or (found.partial and not found.rows):
                found = await desk.workers.find(query, asker, is_owner, now)
        except QueryError as error:
            found = FoundRows([], error=str(error))
        if found is None:
            return None
        if found.is_late:
            desk.counters.add("queries_ended")
            desk.identity.refused(asker, f"asked for more than is searched ({query.by}: {query.text[:80]!r})")
        desk.counters.add("topics_searched")
        topics: list[list[bytes]] = []
        signatures: list[bytes] = []
        size, is_partial = 0, found.partial
        for topic in desk.store.rows(found.rows):
            signatures_of = (topic.tdn_signature, topic.creator_signature)
            desk.certificates_for(signatures_of)
            if (is_own and topic.creator != desk.me) or desk.is_revoked(topic):
                continue
            packed = topic.packed()
            size += sum(map(len, packed))
            if size > REPLY_MAX_BYTES:
                is_partial = True
                break
            topics.append(packed)
            signatures += signatures_of
        certificates = desk.certificates_for(signatures)
        return msgspec.msgpack.encode(Bundle(certificates, topics, is_partial, found.error))

    def _key(self, asker: str, call: Call) -> bytes | None:
        desk = self._desk
        wanted = _decoded(calls.key_wanted_decoder, call.body)
        topic = desk.rights.known.get(wanted.topic)
        if topic is None or not topic.body.terms.sealed:
            return None
        if not any(desk.rights.may(asker, verb, wanted.topic) for verb in (PUBLISH, SUBSCRIBE)):
            desk.counters.add("topic_keys_denied")
            desk.identity.refused(asker, f"asks for the key of {topic.synopsis!r} without a right to it")
            return None
        key = desk.old_key(topic.id, wanted.made_at_us) if wanted.exactly else desk.current_key(topic)
        return msgspec.msgpack.encode(KeyGiven(key.made_at_us, key.secret)) if key is not None else None

    def _grant(self, asker: str, call: Call) -> bytes:
        topic = self._desk.take_over(call.body)
        self._desk.counters.add("grants_taken")
        del asker
        return topic.id.encode()

    def _revoke(self, asker: str, call: Call) -> bytes:
        desk = self._desk
        revoking = _decoded(calls.revoking_decoder, call.body)
        for certificate in revoking.certificates:
            desk.witnesses.meet(certificate)
        desk.rights.introduce(Advertisement.unpacked(revoking.topic))
        desk.rights.revoke(revoking.revocation)
        body = read_revocation(revoking.revocation)
        if desk.tdn is not None:
            certificate = desk.certificates_for([revoking.revocation.signature])[0]
            desk.store.keep_revocation(body.topic, body.holder, revoking.revocation, certificate)
        desk.node.show_rights(time.monotonic())
        del asker
        return KEPT


def _decoded(decoder: "msgspec.msgpack.Decoder[T]", content: bytes) -> T:
    try:
        return decoder.decode(content)
    except calls.BROKEN:
        raise TrustError("malformed", "a question that makes no sense") from None


_terms_decoder = msgspec.msgpack.Decoder(Terms)
