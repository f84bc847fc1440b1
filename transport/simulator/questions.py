"""Questions of simulated applications, and who answers them. Letters are plain there: nothing is sealed."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from anabranch.overlay.actions import Action, AnswerCame, QuestionCame, QuestionOver

if TYPE_CHECKING:
    from anabranch.transport.simulator.shell import Shell

Answering = Callable[[str, bytes], bytes | None]
"""(asker, letter) to an answer, or to silence."""


class SimQuestion:
    """What came of a question."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.unanswered: tuple[str, ...] | None = None
        """Who should have answered and did not; None while answers may still come."""
        self.over_at = 0.0


class SimQuestions:
    """Of one peer."""

    def __init__(self) -> None:
        self.answering: Answering | None = None
        self.came: list[tuple[str, bytes]] = []
        self._open: dict[int, SimQuestion] = {}

    def ask(self, shell: "Shell", letters: Mapping[str, bytes], within_s: float, time: float) -> SimQuestion:
        """Ask these peers."""
        token = shell.node.new_token()
        question = self._open[token] = SimQuestion()
        shell.node.ask(letters, token, within_s, shell.clock(time))
        shell.turn(time)
        return question

    def ask_all(
        self, shell: "Shell", letter: bytes, ttl: int, within_s: float, awaits_all: bool, time: float
    ) -> SimQuestion:
        """Ask everybody within `ttl` hops."""
        token = shell.node.new_token()
        question = self._open[token] = SimQuestion()
        shell.node.ask_all(letter, token, ttl, within_s, awaits_all, shell.clock(time))
        shell.turn(time)
        return question

    def act(self, shell: "Shell", action: Action, time: float) -> None:
        """Carry out what concerns questions."""
        if isinstance(action, QuestionCame):
            self.came.append((action.asker, action.letter))
            answer = self.answering(action.asker, action.letter) if self.answering else None
            if answer is not None:
                shell.node.answer(action.asker, action.token, answer, shell.clock(time))
        elif isinstance(action, AnswerCame):
            self._open[action.token].answers[action.origin] = action.letter
        elif isinstance(action, QuestionOver):
            question = self._open.pop(action.token)
            question.unanswered = action.unanswered
            question.over_at = time
