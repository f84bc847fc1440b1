"""Questions to other peers and their answers: to named peers, or through the mesh as far as a TTL reaches.

Knows who has still to answer, and when nobody can any more. What is in the letters is the shell's.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping

import msgspec

from anabranch.overlay.actions import Action, AnswerCame, QuestionCame, QuestionOver, SendControl
from anabranch.overlay.codec import encode_body, encode_control, question_part
from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.errors import DropReason, PeerError
from anabranch.overlay.headers import EPOCH_MAX, Flag, Kind, LetterBody, Question
from anabranch.overlay.identifiers import is_peer_name
from anabranch.overlay.identity import Identity
from anabranch.overlay.links import Link, LinkTable
from anabranch.overlay.posting import Posting
from anabranch.overlay.qos import Role
from anabranch.overlay.rates import Rate
from anabranch.overlay.recordbook import RecordBook
from anabranch.overlay.routes import Routes
from anabranch.overlay.sessions import TimerKey
from anabranch.overlay.timers import Timers
from anabranch.security.signing import Signer, Verifier

TTL_MAX = 16
ASKED_MAX = 4096
"""Questions open here at a time."""
SEEN_MAX = 16_384
"""Questions through the mesh that are remembered, so that each passes once."""
ASKERS_MAX = 4096
LETTER_MAX_BYTES = 1024 * 1024
QUESTION_MAX_BYTES = 8 * 1024
"""Of one that goes through the whole mesh."""
AGAIN_AFTER_S = 0.5
"""A question to a named peer is sent again after this, then after twice as long, and so on."""
_LETTER = int(Flag.LETTER)


class _Asked(msgspec.Struct):
    letters: Mapping[str, bytes]
    waiting: dict[str, None] | None
    """Who has still to answer; None when that cannot be known."""
    until: float
    again_at: float
    pause_s: float
    answered: set[str]


class Discovery:
    """Our questions, and those of others that come by."""

    def __init__(
        self,
        identity: Identity,
        config: Config,
        links: LinkTable,
        routes: Routes,
        book: RecordBook,
        posting: Posting,
        signer: Signer,
        verifier: Verifier,
        counters: Counters,
        timers: Timers[TimerKey],
    ) -> None:
        self._identity = identity
        self._config = config
        self._links = links
        self._routes = routes
        self._book = book
        self._posting = posting
        self._signer = signer
        self._verifier = verifier
        self._counters = counters
        self._timers = timers
        self._number = 0
        self._asked: dict[int, _Asked] = {}
        self._seen: OrderedDict[tuple[str, int, int], None] = OrderedDict()
        self._askers: OrderedDict[str, Rate] = OrderedDict()

    def ask(self, letters: Mapping[str, bytes], token: int, within_s: float, now: float) -> list[Action]:
        """A letter to each of these peers; `QuestionOver` comes when all answered, or nobody can any more."""
        if len(self._asked) >= ASKED_MAX:
            return [QuestionOver(token, tuple(sorted(letters)))]
        again = now + AGAIN_AFTER_S
        asked = _Asked(letters, dict.fromkeys(sorted(letters)), now + within_s, again, AGAIN_AFTER_S, set())
        self._asked[token] = asked
        return [*self._send(token, asked, now), *self.look(now)]

    def ask_all(
        self, letter: bytes, token: int, ttl: int, within_s: float, awaits_all: bool, now: float
    ) -> list[Action]:
        """A letter to everybody within `ttl` hops; with `awaits_all`, over once all of them answered."""
        if len(self._asked) >= ASKED_MAX:
            return [QuestionOver(token, ())]
        ttl = min(max(1, ttl), TTL_MAX)
        waiting = dict.fromkeys(sorted(self._within(ttl))) if awaits_all else None
        self._asked[token] = _Asked({}, waiting, now + within_s, float("inf"), 0.0, set())
        me = self._identity
        question = Question(me.peer, me.epoch, token, letter)
        question.signature = self._signer.sign(question_part(question))
        question.ttl = ttl
        return [*self._flood(question, None), *self.look(now)]

    def new_token(self) -> int:
        """Names a question; letters can refer to it before it is asked."""
        self._number += 1
        return self._number

    def answer(self, asker: str, token: int, letter: bytes, now: float) -> list[Action]:
        """A letter back to who asked."""
        return self._post(asker, LetterBody(True, token, letter), now)

    def close(self, token: int) -> None:
        """No further answer is wanted."""
        self._asked.pop(token, None)

    def question(self, link: Link, question: Question, now: float) -> list[Action]:
        """A question through the mesh came over a link: pass it on, and ask our shell."""
        key = (question.origin, question.epoch, question.token)
        if question.origin == self._identity.peer or key in self._seen:
            return []
        if not is_peer_name(question.origin) or not 0 <= question.epoch < EPOCH_MAX:
            raise PeerError(DropReason.MALFORMED, "question")
        if not 0 < question.ttl <= TTL_MAX or len(question.letter) > QUESTION_MAX_BYTES:
            raise PeerError(DropReason.MALFORMED, "question")
        if link.is_client and question.origin != link.peer:
            raise PeerError(DropReason.CONFLICT, "a light client speaks for itself only")
        if not self._verifier.verify(question.origin, question_part(question), question.signature):
            raise PeerError(DropReason.SIGNATURE)
        self._seen[key] = None
        if len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        if not self._is_allowed(question.origin, now):
            return []
        actions: list[Action] = [QuestionCame(question.origin, question.token, question.letter, True)]
        if question.ttl > 1 and self._config.role is not Role.CLIENT:
            question.ttl -= 1
            actions += self._flood(question, link)
        return actions

    def letter(self, origin: str, body: bytes, now: float) -> list[Action]:
        """A letter for us."""
        try:
            found = _letter_decoder.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise PeerError(DropReason.MALFORMED, "letter") from None
        if len(found.letter) > LETTER_MAX_BYTES:
            raise PeerError(DropReason.OVERSIZED)
        if not found.is_answer:
            return (
                [QuestionCame(origin, found.token, found.letter, False)]
                if self._is_allowed(origin, now)
                else []
            )
        asked = self._asked.get(found.token)
        if asked is None or origin in asked.answered or (asked.letters and origin not in asked.letters):
            self._counters.add("answers_late")
            return []
        asked.answered.add(origin)
        if asked.waiting is not None:
            asked.waiting.pop(origin, None)
        return [AnswerCame(found.token, origin, found.letter), *self.look(now)]

    def look(self, now: float) -> list[Action]:
        """End what nobody can answer any more, ask again where nothing came."""
        if not self._asked:
            return []
        actions: list[Action] = []
        reachable = self.reachable()
        for token, asked in list(self._asked.items()):
            waiting = asked.waiting
            can_answer = waiting is None or any(peer in reachable for peer in waiting)
            if now >= asked.until or not can_answer:
                del self._asked[token]
                actions.append(QuestionOver(token, tuple(waiting or ())))
            elif now >= asked.again_at:
                asked.pause_s *= 2
                asked.again_at = now + asked.pause_s
                actions += self._send(token, asked, now)
        if self._asked:
            due = min(min(each.until, each.again_at) for each in self._asked.values())
            self._timers.set_earliest(("questions", 0), due)
        return actions

    def reachable(self) -> set[str]:
        """Who can be asked now, ourselves included."""
        me = self._identity.peer
        if self._config.role is not Role.CLIENT:
            return self._routes.reachable() | {me}
        return self._book.origins() if self._links.by_peer else {me}

    def _within(self, ttl: int) -> set[str]:
        """The peers that a question with this TTL reaches, as far as is known."""
        me = self._identity.peer
        if self._config.role is Role.CLIENT:
            return self.reachable() - {me}
        graph = self._routes.topology.graph()
        found, edge = {me}, {me}
        for _ in range(ttl):
            edge = {there for here in edge for there in graph.get(here, ())} - found
            found |= edge
        return found - {me}

    def _is_allowed(self, asker: str, now: float) -> bool:
        rate = self._askers.get(asker)
        if rate is None:
            if len(self._askers) >= ASKERS_MAX:
                self._askers.popitem(last=False)
            rate = self._askers[asker] = Rate(self._config.questions_rate_max, now)
        if rate.take(now) > 0:
            self._counters.drop(DropReason.ASKS_TOO_OFTEN)
            return False
        return True

    def _send(self, token: int, asked: _Asked, now: float) -> list[Action]:
        actions: list[Action] = []
        for peer in asked.waiting or ():
            if peer == self._identity.peer:
                actions.append(QuestionCame(peer, token, asked.letters[peer], False))
            else:
                actions += self._post(peer, LetterBody(False, token, asked.letters[peer]), now)
        return actions

    def _post(self, to: str, letter: LetterBody, now: float) -> list[Action]:
        if to == self._identity.peer:
            return self.letter(to, encode_body(letter), now)
        route = self._posting.route((to,))
        return self._posting.post(route, [encode_body(letter)], _LETTER, 1, now, 0)

    def _flood(self, question: Question, source: Link | None) -> list[Action]:
        frame = encode_control(Kind.QUESTION, question)
        targets: Iterable[Link] = self._links.by_peer.values()
        return [SendControl(link.id, frame) for link in targets if link is not source]


_letter_decoder = msgspec.msgpack.Decoder(LetterBody)
