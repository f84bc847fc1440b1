"""When the event loop stays awake: for conversations, not for streams."""

import asyncio
import os
import time

import pytest

from anabranch.transport import polling
from anabranch.transport.polling import CONTESTED_S, CONVERSATION_MAX_BYTES, TRY_EVERY, BusyPoll


def looks_after(size: int, seconds: float = 60.0) -> int:
    """How often the loop was kept awake after so many reads of this size."""

    async def scenario() -> int:
        poll = BusyPoll(seconds)
        looks = 0
        loop = asyncio.get_running_loop()
        call_soon = loop.call_soon

        def count(*arguments: object, **_: object) -> object:
            nonlocal looks
            looks += 1
            return call_soon(lambda: None)

        loop.call_soon = count  # type: ignore[method-assign,assignment]
        for _ in range(2 * TRY_EVERY):
            poll.arrived(size)
        del loop.call_soon
        return looks

    return asyncio.run(scenario())


def test_small_messages_that_follow_each_other_keep_the_loop_awake() -> None:
    assert looks_after(100) == 1
    assert looks_after(100, seconds=0.0) == 0


def test_a_stream_does_not() -> None:
    assert looks_after(CONVERSATION_MAX_BYTES + 1) == 0


@pytest.mark.parametrize(("away_s", "expected"), [(0.0, True), (2 * CONTESTED_S, False)])
def test_the_loop_may_sleep_where_others_need_the_core(
    monkeypatch: pytest.MonkeyPatch, away_s: float, expected: bool
) -> None:
    async def scenario() -> bool:
        monkeypatch.setattr(os, "sched_yield", lambda: time.sleep(away_s) if away_s else None)
        monkeypatch.setattr(polling, "CONTESTED_S", CONTESTED_S if away_s else 60.0)
        poll = BusyPoll(0.05)
        for _ in range(TRY_EVERY):
            poll.arrived(100)
        for _ in range(3):
            await asyncio.sleep(0)
        return poll.is_polling

    assert asyncio.run(scenario()) is expected
