"""The queue of a subscription: order, counts and the overflow policies, against a plain list."""

import asyncio
from collections import deque
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.actions import DeliveredRun
from anabranch.overlay.counters import Counters
from anabranch.overlay.errors import ClosedError, UsageError
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.qos import Overflow
from anabranch.transport.message import Message
from anabranch.transport.subscription import BLOCK_MAX_S, Callback, Subscription


class Host:
    """Notes what a subscription asks of its peer."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.forgotten: list[int] = []
        self.pauses: list[float] = []
        self.resumed = 0
        self.backlogs: list[tuple[tuple[str, ...], float]] = []

    def forget_subscription(self, subscription: SubscriptionId) -> None:
        self.forgotten.append(subscription)

    def pause_reading(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def resume_reading(self) -> None:
        self.resumed += 1

    def application_backlog(self, path: tuple[str, ...], backlog_s: float) -> None:
        self.backlogs.append((path, backlog_s))


def make(queue_max: int, overflow: Overflow = Overflow.DROP_OLDEST) -> tuple[Subscription, Host]:
    host = Host()
    return Subscription(host, SubscriptionId(3), "t/*", queue_max, overflow, None), host


def run_of(first: int, count: int, topic: str = "t/1") -> DeliveredRun:
    payloads = list(range(first, first + count))
    return DeliveredRun(topic, "a", 1, first, payloads, 0.0, 0.0, 0.0, ("a", "b"))


def drain(subscription: Subscription) -> list[object]:
    got = []
    while (message := subscription.receive_nowait()) is not None:
        assert message.payload == message.sequence
        got.append(message.payload)
    return got


STEPS = st.lists(st.integers(1, 9) | st.integers(-6, -1), max_size=30)


@given(st.integers(1, 12), st.sampled_from([Overflow.DROP_OLDEST, Overflow.DROP_NEWEST]), STEPS)
def test_runs_in_and_messages_out_equal_a_bounded_list(
    queue_max: int, overflow: Overflow, steps: list[int]
) -> None:
    subscription, host = make(queue_max, overflow)
    twin: deque[int] = deque()
    dropped = 0
    at = 0
    for step in steps:
        if step > 0:
            subscription.offer(run_of(at, step))
            for number in range(at, at + step):
                if len(twin) < queue_max:
                    twin.append(number)
                elif overflow is Overflow.DROP_OLDEST:
                    twin.popleft()
                    twin.append(number)
                    dropped += 1
                else:
                    dropped += 1
            at += step
        else:
            for _ in range(-step):
                message = subscription.receive_nowait()
                expected = twin.popleft() if twin else None
                assert (message.payload if message is not None else None) == expected
        assert subscription.pending == len(twin) <= queue_max
        assert subscription.dropped == host.counters["dropped.subscription_full"] == dropped
    assert drain(subscription) == list(twin)
    assert host.pauses == []


@given(st.integers(1, 8), STEPS)
def test_iteration_and_overflow_may_interleave(queue_max: int, steps: list[int]) -> None:
    async def scenario() -> None:
        subscription, _ = make(queue_max, Overflow.DROP_OLDEST)
        got: list[object] = []
        at = 0
        iterator = subscription.__aiter__()
        for step in steps:
            if step > 0:
                subscription.offer(run_of(at, step))
                at += step
            else:
                count = min(-step, subscription.pending)
                got += [(await anext(iterator)).payload for _ in range(count)]  # type: ignore[arg-type]
        await iterator.aclose()  # type: ignore[attr-defined]
        got += drain(subscription)
        assert got == sorted(set(got)), "in order, none twice"  # type: ignore[type-var]
        assert len(got) + subscription.dropped == at
        if at:
            assert got[-1] == at - 1, "the newest stays"

    asyncio.run(scenario())


@given(st.integers(1, 8), STEPS)
def test_blocking_in_vain_keeps_order_loses_the_newest_only_and_stays_bounded(
    queue_max: int, steps: list[int]
) -> None:
    subscription, _ = make(queue_max, Overflow.BLOCK)
    got: list[object] = []
    at = 0
    clock = [1000.0]
    with patch("anabranch.transport.subscription.time.monotonic", lambda: clock[0]):
        for step in steps:
            clock[0] += 1.0  # the pause for the last run is long over
            if step > 0:
                subscription.offer(run_of(at, step))
                at += step
            else:
                messages = [subscription.receive_nowait() for _ in range(-step)]
                got += [message.payload for message in messages if message is not None]
                clock[0] += 1.0
            assert subscription.pending <= 2 * queue_max + 9, "twice the queue, and what came in one run"
    got += drain(subscription)
    assert got == sorted(set(got))  # type: ignore[type-var]
    assert len(got) + subscription.dropped == at


def test_blocking_stops_the_reading_once_and_lets_it_go_on_at_half() -> None:
    subscription, host = make(10, Overflow.BLOCK)
    subscription.offer(run_of(0, 10))
    assert host.pauses == []
    subscription.offer(run_of(10, 1))
    assert host.pauses == [BLOCK_MAX_S]
    subscription.offer(run_of(11, 1))
    assert len(host.pauses) == 1
    for _ in range(6):
        subscription.receive_nowait()
    assert host.resumed == 0
    subscription.receive_nowait()
    assert (subscription.pending, host.resumed) == (5, 1)
    subscription.offer(run_of(12, 6))
    assert len(host.pauses) == 2, "and stops it again when it is full again"


def test_blocking_takes_the_run_that_fills_it_whole() -> None:
    subscription, host = make(10, Overflow.BLOCK)
    subscription.offer(run_of(0, 500))
    assert host.pauses == [BLOCK_MAX_S]
    assert (subscription.pending, subscription.dropped) == (500, 0)
    assert drain(subscription) == list(range(500))


def test_a_slow_loop_is_asked_about_each_message_from_the_moment_it_blocks() -> None:
    """A loop takes messages in handfuls; those must not keep it from asking for another pause."""

    async def scenario() -> list[object]:
        subscription, host = make(40, Overflow.BLOCK)
        subscription.offer(run_of(0, 30))
        got: list[object] = []
        with patch("anabranch.transport.subscription.time.monotonic") as clock:
            clock.return_value = 100.0
            async for message in subscription:
                got.append(message.payload)
                if len(got) == 3:
                    subscription.offer(run_of(30, 41))
                    assert host.pauses == [BLOCK_MAX_S]
                    assert subscription.pending == 68
                if len(got) in (5, 10):
                    clock.return_value += 0.2
                if len(got) == 12:
                    assert len(host.pauses) == 3, "it goes on taking: the reading stays paused"
                if len(got) == 71:
                    break
            assert host.resumed == 1
            assert subscription.pending == 0
        return got

    assert asyncio.run(scenario()) == list(range(71))


def test_a_quick_blocking_subscription_does_not_end_the_pause_of_another() -> None:
    async def scenario() -> None:
        subscription, host = make(10, Overflow.BLOCK)
        subscription.offer(run_of(0, 1))
        async for _ in subscription:
            break
        subscription.offer(run_of(1, 1))
        iterator = subscription.__aiter__()
        await anext(iterator)  # type: ignore[arg-type]
        waiting = asyncio.ensure_future(anext(iterator))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        assert host.resumed == 0, "it never asked for a pause"
        subscription.close()
        with pytest.raises(StopAsyncIteration):
            await waiting

    asyncio.run(scenario())


def test_a_blocking_subscription_that_is_closed_lets_the_reading_go_on() -> None:
    subscription, host = make(10, Overflow.BLOCK)
    subscription.offer(run_of(0, 11))
    assert host.pauses == [BLOCK_MAX_S]
    subscription.close()
    assert host.resumed == 1


def test_a_backlog_is_told_in_the_time_that_the_application_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("anabranch.transport.subscription.time.monotonic", lambda: clock[0])
    subscription, host = make(100, Overflow.BLOCK)
    subscription.offer(run_of(0, 60))
    for _ in range(10):
        subscription.receive_nowait()
        clock[0] += 0.01
    subscription.offer(run_of(60, 10))
    assert host.backlogs == [(("a", "b"), pytest.approx(50 * 0.01))]
    subscription.offer(run_of(70, 1))
    assert len(host.backlogs) == 1, "not more often than the rate can be seen"


def test_what_is_offered_after_close_is_ignored_and_what_waited_can_be_read() -> None:
    async def scenario() -> None:
        subscription, host = make(10)
        subscription.offer(run_of(0, 2))
        subscription.close()
        subscription.close()
        assert host.forgotten == [3]
        subscription.offer(run_of(2, 2))
        assert [message.payload async for message in subscription] == [0, 1]
        with pytest.raises(ClosedError, match=r"subscription to 't/\*' is closed"):
            await subscription.receive()
        assert subscription.receive_nowait() is None

    asyncio.run(scenario())


def test_a_run_shared_by_two_subscriptions_is_read_by_each_at_its_own_pace() -> None:
    first, _ = make(10)
    second, _ = make(3)
    shared = run_of(0, 6)
    for subscription in (first, second):
        subscription.offer(shared)
    assert drain(second) == [3, 4, 5]
    assert drain(first) == [0, 1, 2, 3, 4, 5]
    assert len(shared.payloads) == 6, "the run itself is left as it was"


@pytest.mark.parametrize("queue_max", [0, -1])
def test_a_queue_must_hold_something(queue_max: int) -> None:
    with pytest.raises(UsageError, match=f"queue_max = {queue_max}: must be at least 1"):
        make(queue_max)


def test_receiving_waits_for_the_next_offer_and_gives_up_in_time() -> None:
    async def scenario() -> None:
        subscription, _ = make(10)
        reading = asyncio.create_task(subscription.receive(timeout=5))
        await asyncio.sleep(0)
        subscription.offer(run_of(0, 1))
        assert (await reading).payload == 0
        with pytest.raises(TimeoutError):
            await subscription.receive(timeout=0.001)
        subscription.offer(run_of(1, 1))
        assert (await subscription.receive(timeout=0)).payload == 1

    asyncio.run(scenario())


def test_a_reader_that_is_cancelled_loses_no_message() -> None:
    async def scenario() -> None:
        subscription, _ = make(10)
        reading = asyncio.create_task(subscription.receive())
        await asyncio.sleep(0)
        subscription.offer(run_of(0, 1))
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert drain(subscription) == [0]

    asyncio.run(scenario())


def called(callback: Callback, runs: int = 3) -> tuple[Subscription, Host]:
    """What a callback did with some runs of two messages each, once the loop came to rest."""

    async def scenario() -> tuple[Subscription, Host]:
        host = Host()
        subscription = Subscription(host, SubscriptionId(3), "t/*", 100, Overflow.DROP_OLDEST, callback)
        for number in range(runs):
            subscription.offer(run_of(2 * number, 2))
        for _ in range(20):
            await asyncio.sleep(0)
        with pytest.raises(UsageError, match="read twice"):
            await subscription.receive(timeout=0.01)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        subscription.close()
        if tasks:
            await asyncio.wait(tasks)
        return subscription, host

    return asyncio.run(scenario())


def test_a_plain_callback_is_called_without_a_task() -> None:
    got: list[object] = []

    def note(message: Message) -> None:
        got.append((message.payload, asyncio.current_task()))

    called(note)
    assert got == [(number, None) for number in range(6)]


def test_what_a_plain_callback_returns_is_awaited_before_the_next_message() -> None:
    order: list[object] = []

    async def later(payload: object) -> None:
        order.append(("begin", payload))
        await asyncio.sleep(0)
        order.append(("end", payload))
        if payload == 1:
            raise ValueError(payload)

    _, host = called(lambda message: later(message.payload) if message.payload else None)  # type: ignore[arg-type,return-value]
    assert order == [(what, number) for number in range(1, 6) for what in ("begin", "end")]
    assert host.counters["callback_errors"] == 1


def test_a_plain_callback_is_not_called_any_more_once_it_closed_its_subscription() -> None:
    async def scenario() -> list[object]:
        got: list[object] = []

        def end(message: Message) -> None:
            got.append(message.payload)
            subscription.close()

        subscription = Subscription(Host(), SubscriptionId(3), "t/*", 100, Overflow.DROP_OLDEST, end)
        subscription.offer(run_of(0, 3))
        subscription.offer(run_of(3, 1))
        await asyncio.sleep(0.01)
        return got

    assert asyncio.run(scenario()) == [0]
