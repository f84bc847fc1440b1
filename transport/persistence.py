"""Between a peer's store and its node: what the node wants kept or read, and what was there at the start."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from anabranch.overlay.actions import (
    AssuredDelivery,
    ForgetConsumer,
    KeepConsumer,
    KeepProgress,
    Load,
)
from anabranch.overlay.assured import StreamKey
from anabranch.overlay.errors import UsageError
from anabranch.overlay.node import Node
from anabranch.overlay.outlets import Outlet
from anabranch.overlay.outstreams import OutStream
from anabranch.overlay.patterns import matches
from anabranch.transport.durable import DurableSubscription
from anabranch.transport.shell import Shell
from anabranch.transport.store import Store, Stored, StoredStream
from anabranch.transport.subscription import Callback, Host

EXPIRE_EVERY_S = 60.0

log = structlog.get_logger("anabranch")


class Persistence:
    """One peer's persistent publishers and durable subscriptions."""

    def __init__(self, store: Store, node: Node) -> None:
        self.store = store
        self._node = node
        self._shell: Shell
        self._streams: dict[StreamKey, OutStream] = {}
        self._open: dict[str, DurableSubscription] = {}
        self._timer: asyncio.TimerHandle | None = None
        store.on_stored = self._stored

    @classmethod
    async def open(cls, directory: Path, node: Node) -> "Persistence":
        """Open the store in this directory; damage is reported in the log and by counters."""
        store = await Store.open(directory, node.peer, node.config.store_max_bytes)
        if store.report:
            log.error("store", report=store.report)
        if store.is_set_aside:
            node.counters.add("store_set_aside")
        node.know_durables(store.durables)
        node.know_consumers(store.consumers)
        return cls(store, node)

    def start(self, shell: Shell) -> None:
        """The shell runs: go on with what is not settled."""
        self._shell = shell
        handlers: dict[type, Callable[[Any], None]] = {
            Load: self._load,
            KeepConsumer: self._keep_consumer,
            KeepProgress: self._keep_progress,
            ForgetConsumer: self._forget_consumer,
        }
        shell.perform_too(handlers)
        for stored in self.store.streams.values():
            if stored.next_sequence > stored.first:
                self._resume(stored)
        shell.turn()
        self._expire()

    async def close(self) -> None:
        """Write what was asked for."""
        if self._timer is not None:
            self._timer.cancel()
        await self.store.close()

    async def stream(self, outlet: Outlet) -> OutStream:
        """The persistent stream of an outlet's topic."""
        stream = self._resume(await self.store.stream(outlet.topic))
        stream.demand, stream.deadline_us = outlet.demand, outlet.deadline_us
        return stream

    # Durable subscriptions

    def subscription(
        self,
        host: Host,
        pattern: str,
        queue_max: int,
        callback: Callback | None,
        name: str,
        auto_accept: bool,
    ) -> DurableSubscription:
        """Make a durable subscription."""
        store, node = self.store, self._node
        positions = store.positions.get(name, {})
        number = node.subscribe(pattern, time.monotonic(), (name, positions))
        try:
            made = DurableSubscription(
                host,
                number,
                pattern,
                queue_max,
                callback,
                name=name,
                auto_accept=auto_accept,
                accept=self.accept,
                on_close=lambda: self._close_durable(name),
            )
        except UsageError:
            node.close_durable(name, time.monotonic())
            node.unsubscribe(number, time.monotonic())
            raise
        self._open[name] = made
        store.positions[name] = positions
        if store.durables.get(name) != (pattern, False):
            store.keep_durable(name, pattern)
        return made

    async def forget_durable(self, name: str) -> None:
        """It will not come back."""
        if name not in self.store.durables:
            known = ", ".join(self.store.durables) or "none"
            raise UsageError(f"durable = {name!r}: no such durable subscription; there are: {known}")
        if name in self._open:
            self._open[name].close()
        await self.store.forget_durable(name)
        self._node.forget_durable(name, time.monotonic())
        self._shell.turn()

    async def accept(self, run: AssuredDelivery, until: int) -> None:
        """A durable subscription accepted all messages of this run's stream before `until`."""
        intake = run.intake
        if until <= intake.confirmed:
            return
        self._shell.gate.check()
        await self.store.accept(intake.consumer, run.origin, intake.stream, until)
        if not self._shell.gate.shut:
            self._node.accepted(run, until, time.monotonic())
            self._shell.turn_soon()

    # Inside

    def _close_durable(self, name: str) -> None:
        self._open.pop(name, None)
        if not self._shell.gate.shut:
            self._node.close_durable(name, time.monotonic())

    def _resume(self, stored: StoredStream) -> OutStream:
        key = self.store.key(stored)
        known = self._streams.get(key)
        if known is None:
            confirmed = {(p, n): end for p, n, end in self.store.confirmed.get(stored.number, ())}
            consumers = [
                (peer, name, confirmed.get((peer, name), stored.first))
                for peer, name, pattern in self.store.consumers
                if matches(pattern, stored.topic)
            ]
            known = self._streams[key] = self._node.persist(
                key, stored.topic, stored.next_sequence, stored.first, consumers, time.monotonic()
            )
        return known

    def _stored(self, key: StreamKey, first: int, messages: list[Stored]) -> None:
        stream = self._streams[key]
        if self._shell.gate.shut:
            return
        self._node.stored(stream, first, [each.message for each in messages], time.monotonic())
        confirmations = self._shell.assurances.confirmations(stream)
        for each in messages:
            confirmations.register(each.receipt, each.sequence)
        self._node.flush(time.monotonic())
        self._shell.turn()

    def _load(self, action: Load) -> None:
        stream = self._streams[action.stream]

        def loaded(messages: list[Any], end: int) -> None:
            if not self._shell.gate.shut:
                self._node.loaded(stream, action.first, messages, end, time.monotonic())
                self._shell.turn()

        self.store.load(action.stream, action.first, action.bytes_max, loaded)

    def _keep_consumer(self, action: KeepConsumer) -> None:
        self.store.keep_consumer(action.peer, action.name, action.pattern)

    def _keep_progress(self, action: KeepProgress) -> None:
        self.store.release(action.stream, action.floor, action.confirmed)

    def _forget_consumer(self, action: ForgetConsumer) -> None:
        self.store.forget_consumer(action.peer, action.name)

    def _expire(self) -> None:
        retention_s = self._node.config.store_retention_s
        if not retention_s:
            return

        def done(firsts: dict[StreamKey, int]) -> None:
            if self._shell.gate.shut:
                return
            for key, first in firsts.items():
                if key in self._streams:
                    self._node.expired(self._streams[key], first, time.monotonic())
            self._shell.turn()

        self.store.expire(retention_s, done)
        pause_s = min(EXPIRE_EVERY_S, retention_s / 4)
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._expire)
