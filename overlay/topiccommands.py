"""The commands about topics: questions, answers, rights to restricted topics. A base of `Commands`."""

from collections.abc import Mapping

from anabranch.overlay.actions import Action
from anabranch.overlay.duties import Duties
from anabranch.overlay.headers import RecordKind
from anabranch.overlay.parts import Parts


class TopicCommands:
    """Each takes `now`; a shell takes the actions afterwards."""

    _parts: Parts
    _duties: Duties
    _actions: list[Action]

    def new_token(self) -> int:
        """Names a question that is going to be asked."""
        return self._parts.discovery.new_token()

    def ask(self, letters: Mapping[str, bytes], token: int, within_s: float, now: float) -> None:
        """Ask each of these peers; `AnswerCame` for each answer, and `QuestionOver` in any case."""
        self._actions += self._parts.discovery.ask(letters, token, within_s, now)
        self._actions += self._duties.conclude(now)

    def ask_all(
        self, letter: bytes, token: int, ttl: int, within_s: float, awaits_all: bool, now: float
    ) -> None:
        """Ask everybody within `ttl` hops; it is over after `within_s`, or once all answered if all shall."""
        self._actions += self._parts.discovery.ask_all(letter, token, ttl, within_s, awaits_all, now)
        self._actions += self._duties.conclude(now)

    def answer(self, asker: str, token: int, letter: bytes, now: float) -> None:
        """Answer a `QuestionCame`."""
        self._actions += self._parts.discovery.answer(asker, token, letter, now)
        self._actions += self._duties.conclude(now)

    def close_question(self, token: int) -> None:
        """What is answered now comes too late."""
        self._parts.discovery.close(token)

    def serve(self, service: str, now: float) -> None:
        """Tell the mesh that we do this for others."""
        self._parts.telling.services.append(service)
        self._actions += self._parts.telling.roles(now)
        self._actions += self._duties.conclude(now)

    def serving(self, service: str) -> tuple[str, ...]:
        """The peers that say they do this and can be reached, sorted."""
        reachable = self._parts.discovery.reachable()
        found = {peer for peer, services in self._parts.telling.services_of.items() if service in services}
        if service in self._parts.telling.services:
            found.add(self._parts.identity.peer)
        return tuple(sorted(found & reachable))

    def epoch_of(self, peer: str) -> int:
        """Which start of a peer we know of; 0 when none."""
        record = self._parts.spreading.book.get(peer, RecordKind.ROLES)
        return record.epoch if record is not None else 0

    def show_rights(self, now: float) -> None:
        """The table of rights was told of a grant or a revocation: tell the mesh, act on it."""
        self._actions += self._parts.telling.entitling.tell(now)
        self._actions += self._duties.conclude(now)

    def may_subscribe(self, topic: str) -> bool:
        """Whether our interest in this topic counts."""
        return self._parts.restricting.may_subscribe(self._parts.identity.peer, topic)
