"""Questions of this peer about topics: to discovery nodes, to creators, or to everybody."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

import msgspec

from anabranch.overlay.actions import AnswerCame, QuestionOver
from anabranch.overlay.errors import AnabranchError
from anabranch.security.errors import TrustError
from anabranch.security.letters import ANYBODY
from anabranch.security.sealing import SealingKey, digest
from anabranch.transport.topics import calls
from anabranch.transport.topics.calls import Call
from anabranch.transport.topics.desk import Desk

LOCATED_S = 60.0
"""How long it is remembered where discovery nodes are."""
LOCATE_WINDOW_S = 0.25
"""How long private nodes, which nobody announces, are waited for."""
LOCATED_MAX = 1024
TTL = 16


class Located(msgspec.Struct, frozen=True):
    """A discovery node that answered."""

    name: str
    response_time: float
    """Seconds until it answered."""
    private: bool
    key: bytes
    at: float
    epoch: int
    """Of the node: once restarted, it has another key."""


class Asked:
    """A question that is open, and its answers as they come: `async for (peer, content)`."""

    def __init__(self, token: int, reply_key: SealingKey) -> None:
        self.token = token
        self.reply_key = reply_key
        self.questions: dict[str, bytes] = {}
        """Digests of the letters, by reader."""
        self.unanswered: tuple[str, ...] = ()
        self.answers: asyncio.Queue[tuple[str, bytes] | None] = asyncio.Queue()

    async def __aiter__(self) -> AsyncIterator[tuple[str, bytes]]:
        """Until no further answer comes."""
        while (answer := await self.answers.get()) is not None:
            yield answer


class Asking:
    """Carries out `AnswerCame` and `QuestionOver`; knows the discovery nodes."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._open: dict[int, Asked] = {}
        self._located: dict[str, Located] = {}
        self._looked_at = -1e9
        self._looking: asyncio.Task[list[Located]] | None = None

    async def close(self) -> None:
        """The peer closes: what is open gets no further answers."""
        for asked in self._open.values():
            asked.answers.put_nowait(None)
        self._open.clear()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    # Discovery nodes

    async def locate(
        self, within: float = LOCATE_WINDOW_S, *, is_first_enough: bool = False
    ) -> list[Located]:
        """Ask the whole mesh where discovery nodes are; the quickest first."""
        began = time.monotonic()
        asked = self.ask_all(calls.LOCATE, b"", within, awaits_all=False)
        found: list[Located] = []
        async for name, content in asked:
            if self._take_location(name, content, began):
                found.append(self._located[name])
                if is_first_enough:
                    break
        self.forget(asked)
        if not is_first_enough:
            self._looked_at = began
        return found

    async def tdns(self, names: Sequence[str] | None, within: float) -> dict[str, Located]:
        """The discovery nodes to ask: these, or all that are known; located where they are not yet."""
        now = time.monotonic()
        if names is None:
            if now - self._looked_at > LOCATED_S:
                if self._located:
                    self._look_again()
                else:
                    await self.locate(min(within, LOCATE_WINDOW_S))
            names = sorted({*self._desk.node.serving("tdn"), *self._located})
        reachable = {*self._desk.node.reachable(), self._desk.me}
        unknown = [name for name in names if name in reachable and not self._is_fresh(name, now)]
        if unknown:
            began = time.monotonic()
            asked = self.ask(calls.LOCATE, b"", unknown, within)
            async for name, content in asked:
                self._take_location(name, content, began)
            self.forget(asked)
        return {name: self._located[name] for name in names if name in self._located and name in reachable}

    def _is_fresh(self, name: str, now: float) -> bool:
        known = self._located.get(name)
        return (
            known is not None and known.at > now - LOCATED_S and known.epoch == self._desk.node.epoch_of(name)
        )

    def _look_again(self) -> None:
        if self._looking is None or self._looking.done():
            self._looked_at = time.monotonic()
            self._looking = asyncio.get_running_loop().create_task(self.locate())

    def _take_location(self, name: str, content: bytes, began: float) -> bool:
        desk = self._desk
        try:
            if "tdn" not in desk.letters.holder(name).roles:
                raise TrustError("role", f"{name!r} answers as a discovery node, which it is not")
            here = calls.here_decoder.decode(content)
        except calls.BROKEN:
            desk.refuse(name, TrustError("malformed", f"{name!r} answers as no discovery node does"))
            return False
        except TrustError as error:
            desk.refuse(name, error)
            return False
        if len(self._located) >= LOCATED_MAX:
            del self._located[next(iter(self._located))]
        now = time.monotonic()
        epoch = desk.node.epoch_of(name)
        self._located[name] = Located(name, now - began, here.private, here.key, now, epoch)
        return True

    def lost(self, names: Iterable[str]) -> None:
        """These did not answer: ask where they are before the next time."""
        for name in names:
            self._located.pop(name, None)

    # Questions

    def ask(
        self,
        what: str,
        body: bytes,
        names: Sequence[str],
        within: float,
        keys: Mapping[str, bytes] | None = None,
    ) -> Asked:
        """Ask each of these peers; sealed to their keys, if there are any."""
        asked, content = self._new(what, body)
        context = calls.asking_context(asked.token)
        letters = {}
        for name in names:
            key = keys[name] if keys is not None else b""
            letters[name] = self._desk.letters.write(name, context, content, key)
            asked.questions[name] = digest(letters[name])
        self._desk.node.ask(letters, asked.token, within, time.monotonic())
        self._desk.shell.turn()
        return asked

    def ask_all(self, what: str, body: bytes, within: float, *, awaits_all: bool, ttl: int = TTL) -> Asked:
        """Ask everybody within `ttl` hops."""
        asked, content = self._new(what, body)
        letter = self._desk.letters.write(ANYBODY, calls.asking_context(asked.token), content)
        asked.questions[ANYBODY] = digest(letter)
        self._desk.node.ask_all(letter, asked.token, ttl, within, awaits_all, time.monotonic())
        self._desk.shell.turn()
        return asked

    async def ask_one(self, what: str, body: bytes, name: str, within: float, key: bytes = b"") -> bytes:
        """The answer of one peer; AnabranchError when none comes."""
        asked = self.ask(what, body, [name], within, {name: key})
        async for _, content in asked:
            self.forget(asked)
            return content
        raise AnabranchError(f"{name!r} did not answer to {what!r} within {within:g} s: gone, or unwilling")

    def forget(self, asked: Asked) -> None:
        """No further answer is wanted."""
        if self._open.pop(asked.token, None) is not None:
            self._desk.node.close_question(asked.token)

    # Actions

    def answered(self, action: AnswerCame) -> None:
        """An answer came."""
        desk, asked = self._desk, self._open.get(action.token)
        if asked is None:
            return
        question = asked.questions.get(action.origin) or asked.questions.get(ANYBODY, b"")
        try:
            context = calls.answering_context(question)
            content = desk.letters.read(action.origin, desk.me, context, action.letter, asked.reply_key)
        except TrustError as error:
            desk.refuse(action.origin, error)
            return
        asked.answers.put_nowait((action.origin, content))

    def over(self, action: QuestionOver) -> None:
        """No further answer comes."""
        asked = self._open.pop(action.token, None)
        if asked is not None:
            asked.unanswered = action.unanswered
            asked.answers.put_nowait(None)

    def _new(self, what: str, body: bytes) -> tuple[Asked, bytes]:
        asked = Asked(self._desk.node.new_token(), SealingKey())
        self._open[asked.token] = asked
        return asked, msgspec.msgpack.encode(Call(what, body, asked.reply_key.public))
