"""Subscriptions that are told of lateness, gaps and silence; publishers with a rate; rules by topic."""

import asyncio
import sys
import time
from pathlib import Path

import pytest

from anabranch import AssuredPublisher, Config, Guarantee, LimitError, Missed, TopicRule, UsageError
from anabranch.transport.loops import run
from anabranch.transport.settings import load_settings

sys.path.insert(0, str(Path(__file__).parent))
from support_peers import WAIT_S, pair, until


def test_an_application_is_told_of_late_messages_and_of_silence() -> None:
    async def scenario() -> None:
        told: list[Missed] = []
        async with pair() as (a, b), b.subscribe("t/*", on_missed=told.append, silence=0.3) as inbox:
            await a.wait_for_subscribers("t/1", timeout=WAIT_S)
            punctual = await a.publisher("t/1")
            await punctual.put(b"x")
            hopeless = await a.publisher("t/1", deadline=0.000_001)
            await hopeless.put(b"late")
            assert [(await inbox.receive(WAIT_S)).late for _ in range(2)] == [False, True]
            await until(lambda: len(told) >= 3, "late, and silence twice")
            assert [each.kind for each in told[:3]] == ["late", "silence", "silence"]
            assert (told[0].topic, told[0].origin, told[0].sequence, told[0].count) == ("t/1", "a", 0, 1)
            assert (told[1].origin, told[1].sequence, told[1].count) == ("a", 1, 0)
            assert b.counters["missed.late"] == 1
            with pytest.raises(UsageError, match="needs on_missed"):
                b.subscribe("t", silence=1.0)

    run(scenario())


def test_a_rate_makes_put_wait_or_drop_and_rules_by_topic_hold() -> None:
    rules = (
        TopicRule(pattern="slow/**", rate_max=100.0),
        TopicRule(pattern="sure/*", guarantee="acknowledged"),
    )

    async def scenario() -> None:
        async with pair(Config.local(topics=rules)) as (a, b), b.subscribe("**", queue_max=1000):
            await a.wait_for_subscribers("slow/x", timeout=WAIT_S)
            slow = await a.publisher("slow/x")
            began = time.monotonic()
            for _ in range(40):
                await slow.put(b"x")
            assert time.monotonic() - began >= 0.29, "30 of them had to wait for 10 ms each"
            hasty = await a.publisher("slow/x", overflow="drop_newest")
            for _ in range(100):
                await hasty.put(b"x")
            assert a.counters["dropped.rate"] >= 80
            sure = await a.publisher("sure/x")
            assert isinstance(sure, AssuredPublisher)
            assert not isinstance(await a.publisher("sure/x", guarantee="best_effort"), AssuredPublisher)
            refused = await a.publisher("sure/x", rate_max=1.0, overflow="drop_newest")
            await refused.put(b"x")
            with pytest.raises(LimitError, match="rate_max"):
                await refused.put(b"x")
            await asyncio.sleep(0)

    run(scenario())


def test_rules_come_from_a_file_and_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "peer.toml"
    file.write_text('[[config.topics]]\npattern = "a/**"\nguarantee = "persistent"\nrate_max = 5.0\n')
    settings = load_settings(file=file, environ={}, options={})
    assert settings.config.topics == (
        TopicRule(pattern="a/**", guarantee=Guarantee.PERSISTENT, rate_max=5.0),
    )
    file.write_text('[[config.topics]]\npattern = "a/**"\nguarantee = "often"\n')
    with pytest.raises(UsageError, match="topics"):
        load_settings(file=file, environ={}, options={})
