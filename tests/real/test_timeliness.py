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


def test_what_waits_of_a_publisher_is_limited_and_others_keep_their_room() -> None:
    rules = (TopicRule(pattern="bulk/*", queued_max_bytes=300_000),)
    payload = bytes(100_000)

    async def scenario() -> None:
        async with pair(Config.local(topics=rules)) as (a, b), b.subscribe("**", queue_max=10_000) as inbox:
            await a.wait_for_subscribers("bulk/x", timeout=WAIT_S)
            bulk = await a.publisher("bulk/x")
            taken = 0
            while bulk.put_nowait(payload):  # nobody reads meanwhile: the link fills
                taken += 1
                assert taken < 1000
            assert a.counters["dropped.queued"] == 1
            dropping = await a.publisher("bulk/y", overflow="drop_newest", queued_max_bytes=1)
            for _ in range(3):
                await dropping.put(payload, attributes={"n": 1})
            assert a.counters["dropped.queued"] == 3, "one may wait alone"
            own = await a.publisher("other")
            own.put_nowait(b"has room")
            await asyncio.wait_for(bulk.put(b"waited"), WAIT_S)
            payloads = [(await inbox.receive(WAIT_S)).payload for _ in range(taken + 3)]
            assert payloads.count(payload) == taken + 1
            assert {b"waited", b"has room"} <= set(payloads)
            assert a.counters["dropped.queue_full"] == 0
            assert a.counters["dropped.queued"] == 3

    run(scenario())


def test_a_limit_to_what_waits_is_for_best_effort() -> None:
    async def scenario() -> None:
        async with pair(Config.local(topics=(TopicRule(pattern="t", queued_max_bytes=1),))) as (a, _):
            assert isinstance(await a.publisher("t", guarantee="acknowledged"), AssuredPublisher)
            with pytest.raises(UsageError, match="unconfirmed_max_bytes"):
                await a.publisher("t", guarantee="acknowledged", queued_max_bytes=5)
            with pytest.raises(UsageError, match="at least 1"):
                await a.publisher("t", queued_max_bytes=0)

    with pytest.raises(UsageError, match="best effort"):
        TopicRule(pattern="t", guarantee=Guarantee.ACKNOWLEDGED, queued_max_bytes=1)
    with pytest.raises(UsageError, match="negative"):
        TopicRule(pattern="t", queued_max_bytes=-1)
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
