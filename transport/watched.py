"""Subscriptions whose application is told what was late, is missing, or should have come."""

import asyncio
import time
from collections.abc import Callable

import structlog

from anabranch.overlay.actions import DeliveredRun
from anabranch.overlay.errors import UsageError
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.missing import Missed, Watch
from anabranch.overlay.qos import Overflow
from anabranch.transport.subscription import Callback, Host, Subscription

OnMissed = Callable[[Missed], object]

log = structlog.get_logger("anabranch")


class WatchedSubscription(Subscription):
    """A subscription with `on_missed`, which is called in the event loop, at once when it is noticed."""

    def __init__(
        self,
        host: Host,
        subscription_id: SubscriptionId,
        pattern: str,
        queue_max: int,
        overflow: Overflow,
        callback: Callback | None,
        on_missed: OnMissed,
        silence_s: float,
    ) -> None:
        super().__init__(host, subscription_id, pattern, queue_max, overflow, callback)
        self._on_missed = on_missed
        self._loop = asyncio.get_running_loop()
        self._watch = Watch(pattern, silence_s, time.monotonic())
        self._timer: asyncio.TimerHandle | None = None
        self._look()

    def offer(self, run: DeliveredRun) -> None:
        """Take a delivered run, and look whether it tells of something missed."""
        super().offer(run)
        key = (run.topic, run.origin, run.publisher)
        for missed in self._watch.take(
            key, run.first_sequence, run.payloads, run.age_s, run.deadline_s, time.monotonic()
        ):
            self._loop.call_soon(self._tell, missed)

    def close(self) -> None:
        """End it. What waits can still be read; nothing new arrives."""
        super().close()
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        now = time.monotonic()
        for missed in self._watch.expire(now):
            self._tell(missed)
        due = self._watch.due()
        if due is not None and not self._closed:
            self._timer = self._loop.call_later(max(0.0, due - now), self._look)

    def _tell(self, missed: Missed) -> None:
        if self._closed:
            return
        self._host.counters.add(f"missed.{missed.kind}", missed.count or 1)
        try:
            self._on_missed(missed)
        except Exception:  # the application's own failure must not end the subscription
            self._host.counters.add("callback_errors")
            log.exception("on_missed failed", pattern=self.pattern, kind=missed.kind)


def make_subscription(
    host: Host,
    subscription_id: SubscriptionId,
    pattern: str,
    queue_max: int,
    overflow: Overflow,
    callback: Callback | None,
    on_missed: OnMissed | None,
    silence: float | None,
) -> Subscription:
    """A plain subscription, or a watched one where something is to be told."""
    if on_missed is None:
        if silence is not None:
            raise UsageError(f"silence = {silence}: needs on_missed, which is called when it is exceeded")
        return Subscription(host, subscription_id, pattern, queue_max, overflow, callback)
    if silence is not None and not 0 < silence < 1e9:
        raise UsageError(f"silence = {silence}: seconds, above 0")
    return WatchedSubscription(
        host, subscription_id, pattern, queue_max, overflow, callback, on_missed, silence or 0.0
    )
