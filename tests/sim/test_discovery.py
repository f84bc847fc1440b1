"""Questions through a mesh with faults: who is reached, and that the end is known as such."""

from anabranch.overlay.config import Config
from anabranch.transport.simulator import Conditions, Simulator
from anabranch.transport.simulator.questions import SimQuestion

LINE = ("a", "b", "c", "d", "e")


def line(seed: int, config: Config | None = None) -> Simulator:
    """Five peers in a row; all answer with their name."""
    sim = Simulator(seed=seed, default=Conditions(delay_s=0.01))
    config = config or Config(neighbours_target=0)
    before = ""
    for name in LINE:
        sim.add_peer(name, seeds=(before,) if before else (), config=config)
        before = name
    assert sim.run_until_true(sim.is_settled, limit_s=20)
    for name in LINE:
        sim.peer(name).questions.answering = lambda asker, letter, name=name: f"{name} to {asker}".encode()
    return sim


def ask(sim: Simulator, *peers: str, within_s: float = 5.0) -> SimQuestion:
    shell = sim.peer("a")
    return shell.questions.ask(shell, dict.fromkeys(peers, b"?"), within_s, sim.now)


def ask_all(sim: Simulator, ttl: int = 16, within_s: float = 5.0, *, awaits_all: bool = True) -> SimQuestion:
    shell = sim.peer("a")
    return shell.questions.ask_all(shell, b"?", ttl, within_s, awaits_all, sim.now)


def over(sim: Simulator, question: SimQuestion, limit_s: float = 20.0) -> float:
    """How long it took."""
    began = sim.now
    assert sim.run_until_true(lambda: question.unanswered is not None, limit_s=limit_s)
    return question.over_at - began


def test_named_peers_answer_and_the_last_answer_is_the_end() -> None:
    sim = line(1)
    question = ask(sim, "c", "e", "a")
    assert over(sim, question) < 0.1
    assert question.unanswered == ()
    assert question.answers == {"c": b"c to a", "e": b"e to a", "a": b"a to a"}


def test_everybody_within_the_ttl_is_asked_once_and_nobody_beyond() -> None:
    sim = line(2)
    for ttl, reached in ((1, "b"), (2, "bc"), (16, "bcde")):
        for name in LINE:
            sim.peer(name).questions.came.clear()
        question = ask_all(sim, ttl)
        assert over(sim, question) < 0.1
        assert (question.unanswered, "".join(sorted(question.answers))) == ((), reached)
        assert "".join(name for name in LINE if sim.peer(name).questions.came) == reached
        assert all(len(sim.peer(name).questions.came) <= 1 for name in LINE)


def test_in_a_ring_each_peer_is_asked_once() -> None:
    sim = Simulator(seed=7, default=Conditions(delay_s=0.01))
    for name, seeds in (("a", ()), ("b", ("a",)), ("c", ("b",)), ("d", ("c", "a"))):
        sim.add_peer(name, seeds=seeds, config=Config(neighbours_target=0))
    assert sim.run_until_true(sim.is_settled, limit_s=20)
    for name in "abcd":
        sim.peer(name).questions.answering = lambda asker, letter: b"!"
    question = ask_all(sim)
    over(sim, question)
    sim.run_for(1.0)
    assert sorted(question.answers) == ["b", "c", "d"]
    assert [len(sim.peer(name).questions.came) for name in "abcd"] == [0, 1, 1, 1]


def test_who_keeps_silent_is_named_in_the_end() -> None:
    sim = line(3)
    sim.peer("d").questions.answering = lambda asker, letter: None
    question = ask_all(sim, within_s=2.0)
    assert 1.9 < over(sim, question) < 2.1
    assert question.unanswered == ("d",)
    assert sorted(question.answers) == ["b", "c", "e"]
    assert over(sim, ask_all(sim, within_s=1.0, awaits_all=False)) > 0.9


def test_who_cannot_answer_any_more_is_not_waited_for() -> None:
    sim = line(4)
    sim.crash("d")
    question = ask_all(sim, within_s=60.0)
    assert over(sim, question) < 10.0
    assert question.unanswered == ("d", "e")
    assert sorted(question.answers) == ["b", "c"]


def test_a_question_is_asked_again_where_it_may_have_got_lost() -> None:
    sim = line(5)
    said: list[int] = []

    def deaf_at_first(asker: str, letter: bytes) -> bytes | None:
        said.append(1)
        return b"now" if len(said) > 2 else None

    sim.peer("e").questions.answering = deaf_at_first
    question = ask(sim, "e", within_s=10.0)
    assert 1.0 < over(sim, question) < 3.0
    assert question.answers == {"e": b"now"}


def test_who_asks_too_often_is_neither_answered_nor_passed_on() -> None:
    sim = line(6, Config(neighbours_target=0, questions_rate_max=20.0))
    questions = [ask_all(sim, within_s=0.5) for _ in range(30)]
    sim.run_for(1.0)
    answered = [question for question in questions if question.answers]
    assert 1 <= len(answered) < 15
    assert sim.peer("b").node.counters["dropped.asks_too_often"] > 10
    assert len(sim.peer("c").questions.came) <= len(answered)
    sim.run_for(2.0)
    again = ask_all(sim)
    over(sim, again)
    assert again.unanswered == ()
