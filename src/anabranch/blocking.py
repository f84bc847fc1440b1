"""The API in blocking form, for programs without an event loop: `from anabranch.blocking import Peer`.

Each peer has a thread that runs its event loop. Every object may be used from several threads; a call means
what the method of that name means in `anabranch.Peer`, `Publisher` and `Subscription`, unless said here.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from anabranch._assured import AssuredPublisher, DurableSubscription, Receipt
from anabranch._crossing import Handover, Intake, LoopThread
from anabranch._ends import Publisher, Subscription, messages_of
from anabranch._requests import Requesting
from anabranch._topics import Topical
from anabranch.overlay.attributes import check_attributes
from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.errors import ClosedError, UsageError
from anabranch.overlay.expressions import parse
from anabranch.overlay.profiles import Profile
from anabranch.overlay.qos import Guarantee, Overflow
from anabranch.overlay.selections import SITE_TOPIC
from anabranch.transport import peer as asynchronous
from anabranch.transport.assured import AssuredPublisher as AsyncAssured
from anabranch.transport.client import Client as AsyncClient
from anabranch.transport.message import Message
from anabranch.transport.subscription import QUEUE_MAX
from anabranch.transport.subscription import Subscription as AsyncSubscription
from anabranch.transport.topics.policy import Tdn
from anabranch.transport.watched import OnMissed

CALLBACK_DEADLINE_S = 2.0
"""How long `close` waits for a callback that is running."""

__all__ = ["AssuredPublisher", "Client", "DurableSubscription"]
__all__ += ["Peer", "Publisher", "Receipt", "Subscription"]

log = structlog.get_logger("anabranch")


class Peer(Requesting, Topical):
    """One peer of a mesh; the arguments are those of `anabranch.Peer`.

        with Peer("tower-7", listen="tcp://127.0.0.1:7400", open=True) as peer:
            peer.put("air/radar/nyc", {"altitude": 9100})

    A peer that is open when the program ends is closed then, once all threads but daemons have ended.
    """

    def __init__(
        self,
        name: str,
        *,
        listen: str | Sequence[str] = (),
        join: str | Sequence[str] = (),
        advertise: str | Sequence[str] = (),
        config: Config | None = None,
        beacon: str | None = None,
        beacon_unicast: Sequence[str] = (),
        log_dir: str | Path | None = None,
        store_dir: str | Path | None = None,
        profile: str | Path | Profile | None = None,
        identity: str | Path | None = None,
        open: bool = False,  # noqa: A002 - as for anabranch.Peer
        tdn: str | Path | Tdn | None = None,
    ) -> None:
        self._prepare(
            asynchronous.Peer(
                name,
                listen=listen,
                join=join,
                advertise=advertise,
                config=config,
                beacon=beacon,
                beacon_unicast=beacon_unicast,
                log_dir=log_dir,
                store_dir=store_dir,
                profile=profile,
                identity=identity,
                open=open,
                tdn=tdn,
            )
        )

    def _prepare(self, inner: asynchronous.Peer) -> None:
        self.name = inner.name
        self.config = inner.config
        self._inner = inner
        self._thread = LoopThread(str(inner.name))
        self._handovers: set[Handover] = set()
        self._intakes: set[Intake] = set()
        self._callers: set[threading.Thread] = set()
        self._topics: dict[str, Publisher] = {}
        self._topics_lock = threading.Lock()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def addresses(self) -> list[str]:
        """Where this peer accepts links, with real ports; filled when it is entered."""
        return list(self._inner.addresses)

    @property
    def counters(self) -> Counters:
        """What happened how often, as it stands now."""
        return Counters(self._inner.counters)

    def open(self) -> None:
        """Bind, dial, begin. Links come up on their own afterwards; see `wait_for_links`."""
        self._thread.start(lambda: self._close(at_exit=True))
        try:
            self._thread.call(self._inner.open())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let what was put leave, say farewell, free everything; within about three seconds.

        May be called from any thread, callbacks included: waiting puts then raise ClosedError, iterations
        end after what had arrived. Calling it again does nothing, also while the first call is at work.
        """
        self._close(at_exit=False)

    def publisher(
        self,
        topic: str,
        *,
        deadline: float | None = None,
        availability: float | None = None,
        overflow: str | Overflow = Overflow.BLOCK,
        guarantee: str | Guarantee | None = None,
        rate_max: float | None = None,
        queued_max_bytes: int | None = None,
    ) -> Publisher:
        """A publisher of one topic; `Publisher.put` tells what `overflow` means here.

        With a `guarantee` other than best effort it is an `AssuredPublisher`, whose `put` gives a receipt.
        """
        inner = self._thread.call(
            self._inner.publisher(
                topic,
                deadline=deadline,
                availability=availability,
                overflow=overflow,
                guarantee=guarantee,
                rate_max=rate_max,
                queued_max_bytes=queued_max_bytes,
            )
        )
        if isinstance(inner, AsyncAssured):
            return AssuredPublisher(self._thread, inner, lambda: self._close_assured(inner))
        counters, limit = self._inner.counters, self.config.payload_max_bytes
        handover = Handover(self._thread, inner, Overflow(overflow), counters, limit, self._check_selected)
        self._handovers.add(handover)

        async def finish() -> None:
            await handover.finish()
            inner.close()

        def close() -> None:
            self._handovers.discard(handover)
            handover.refuse()
            if not self._thread.refusal:
                self._thread.call(finish())

        return Publisher(topic, handover, close, lambda: self._thread.run(lambda: inner.availability))

    def put(
        self,
        topic: str | None,
        payload: object,
        *,
        attributes: Mapping[str, object] | None = None,
        to: str | None = None,
    ) -> None:
        """Publish once, as `Publisher.put`. For a topic that is published to often, keep a `publisher`."""
        if topic is None:
            if to is None:
                raise UsageError(
                    "put without a topic: name the sites it is for, as in to=\"region = 'north'\""
                )
            topic = SITE_TOPIC
        while True:
            publisher = self._topics.get(topic) or self._topic_publisher(topic)
            try:
                publisher.put(payload, attributes=attributes, to=to)
                return
            except ClosedError:
                if self._topics.get(topic) is publisher:
                    raise  # otherwise it was closed to make room for another topic: open one again

    def subscribe(
        self,
        pattern: str,
        *,
        where: str | None = None,
        callback: Callable[[Message], None] | None = None,
        queue_max: int = QUEUE_MAX,
        overflow: str | Overflow = Overflow.DROP_OLDEST,
        durable: str | None = None,
        auto_accept: bool = True,
        on_missed: OnMissed | None = None,
        silence: float | None = None,
    ) -> Subscription:
        """Want every topic that matches (`*` one level, `**` any number).

        `callback` is called for each message, one at a time, in a thread that this subscription has for it:
        it may block, and may call anything here. What it raises is logged and counted (`callback_errors`).
        Without one, iterate. The queue holds `queue_max` messages, then `overflow` decides; up to 4096
        further messages have been handed over to the reading thread.

        `on_missed` is called in the peer's own thread: it must not block, nor call anything here.
        With `durable` it is a `DurableSubscription`, for one reader, without a callback.
        """
        if inspect.iscoroutinefunction(callback):
            raise UsageError(
                f"callback {callback!r} is a coroutine function: use a plain one, or anabranch.Peer"
            )

        if durable is not None and callback is not None:
            raise UsageError(f"durable = {durable!r} with a callback: read from the subscription instead")

        def subscribe() -> AsyncSubscription:
            return self._inner.subscribe(
                pattern,
                where=where,
                queue_max=queue_max,
                overflow=overflow,
                durable=durable,
                auto_accept=auto_accept,
                on_missed=on_missed,
                silence=silence,
            )

        inner = self._thread.run(subscribe)
        if durable is not None:
            return DurableSubscription(self._thread, inner)
        intake = Intake(self._thread, inner)
        self._intakes.add(intake)
        caller: threading.Thread | None = None

        def close() -> None:
            self._intakes.discard(intake)
            if not self._thread.refusal:
                self._thread.run(inner.close)
            if caller is not None:
                self._callers.discard(caller)
                _join(caller)

        subscription = Subscription(inner, intake, close, has_callback=callback is not None)
        if callback is not None:
            caller = threading.Thread(
                target=self._call_back,
                args=(subscription, intake, callback),
                name=f"callback for {pattern}",
                daemon=True,
            )
            self._callers.add(caller)
            caller.start()
        return subscription

    def forget_durable(self, name: str) -> None:
        """End a durable subscription for good: publishers keep nothing for it any more."""
        self._thread.call(self._inner.forget_durable(name))

    def subscribers(
        self, topic: str, *, attributes: Mapping[str, object] | None = None, to: str | None = None
    ) -> tuple[str, ...]:
        """The peers that want a topic and can be reached now, this one included."""
        return self._thread.run(lambda: self._inner.subscribers(topic, attributes=attributes, to=to))

    def wait_for_subscribers(
        self,
        topic: str,
        count: int = 1,
        *,
        attributes: Mapping[str, object] | None = None,
        to: str | None = None,
        timeout: float | None = None,
    ) -> tuple[str, ...]:
        """Until at least `count` peers want a topic; who they are. TimeoutError after `timeout` seconds."""
        return self._thread.call(
            self._inner.wait_for_subscribers(topic, count, attributes=attributes, to=to, timeout=timeout)
        )

    def wait_for_links(self, count: int = 1, *, timeout: float | None = None) -> None:
        """Until this peer has at least `count` links."""
        self._thread.call(self._inner.wait_for_links(count, timeout=timeout))

    def wait_for_peers(self, *names: str, timeout: float | None = None) -> None:
        """Until all of these peers can be reached."""
        self._thread.call(self._inner.wait_for_peers(*names, timeout=timeout))

    def set_attributes(self, attributes: Mapping[str, object]) -> None:
        """Declare what this site is; replaces earlier attributes."""
        self._thread.run(lambda: self._inner.set_attributes(attributes))

    def report(self) -> dict[str, object]:
        """This peer's own view: links, routes, mesh, counters."""
        return self._thread.run(self._inner.report)

    def inspect(self, peer: str | None = None, *, timeout: float = 5.0) -> dict[str, object]:
        """The view of a neighbour (by default the only one), as its own `report()` gives it."""
        return self._thread.call(self._inner.inspect(peer, timeout=timeout))

    # Inside

    def _check_selected(self, attributes: Mapping[str, object] | None, to: str | None) -> None:
        """UsageError, in the thread that puts, for what cannot be."""
        config = self.config
        if attributes is not None:
            check_attributes(attributes, config.message_attributes)
        if to is not None:
            parse(to, config.site_attributes)

    def _close_assured(self, inner: AsyncAssured) -> None:
        if not self._thread.refusal:
            self._thread.run(inner.close)

    def _topic_publisher(self, topic: str) -> Publisher:
        fresh = self.publisher(topic)
        surplus = []
        with self._topics_lock:
            publisher = self._topics.setdefault(topic, fresh)
            if publisher is not fresh:
                surplus.append(fresh)
            elif len(self._topics) > asynchronous.TOPIC_PUBLISHERS_MAX:
                surplus.append(self._topics.pop(next(iter(self._topics))))
        for each in surplus:
            each.close()
        return publisher

    def _call_back(
        self, subscription: "Subscription", intake: Intake, callback: Callable[[Message], None]
    ) -> None:
        for message in messages_of(intake):
            if subscription.closed or self._thread.refusal:
                return
            try:
                callback(message)
            except Exception:
                log.exception("callback failed", pattern=subscription.pattern, topic=message.topic)
                if not self._thread.refusal:
                    self._thread.soon(self._inner.counters.add, "callback_errors")

    def _close(self, *, at_exit: bool) -> None:
        if not self._thread.refuse(f"peer {self.name} is closed"):
            return
        for handover in list(self._handovers):
            handover.refuse()
        self._thread.finish(self._finish(), at_exit=at_exit)
        for caller in list(self._callers):
            _join(caller)

    async def _finish(self) -> None:
        await asyncio.gather(*(handover.finish() for handover in list(self._handovers)))
        await self._inner.close()
        for intake in list(self._intakes):
            intake.take_rest()


class Client(Peer):
    """A light client in blocking form; the arguments are those of `anabranch.Client`."""

    def __init__(
        self,
        name: str,
        *,
        join: str | Sequence[str],
        config: Config | None = None,
        store_dir: str | Path | None = None,
        identity: str | Path | None = None,
        open: bool = False,  # noqa: A002 - as for anabranch.Peer
    ) -> None:
        inner = AsyncClient(name, join=join, config=config, store_dir=store_dir, identity=identity, open=open)
        self._prepare(inner)


def _join(caller: threading.Thread) -> None:
    if caller is not threading.current_thread():
        caller.join(CALLBACK_DEADLINE_S)
