"""The ZeroMQ shell: runs one node on asyncio with plain sockets.

After any input there is one way out, `turn()`: take the actions, send, re-arm the timer.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

from anabranch.overlay.actions import (
    CloseLink,
    Deliver,
    DeliveredRun,
    Dial,
    Reported,
    SendBundle,
    SendControl,
    SubscribersChanged,
    Write,
)
from anabranch.overlay.addresses import Address
from anabranch.overlay.identifiers import LinkId, SubscriptionId
from anabranch.overlay.node import Node
from anabranch.overlay.outlets import Outlet
from anabranch.overlay.records import LogRecord
from anabranch.transport.assurances import Assurances
from anabranch.transport.connections import keep
from anabranch.transport.gate import Gate
from anabranch.transport.replying import Replying
from anabranch.transport.subscription import Subscription
from anabranch.transport.wiring import Wiring


class Shell:
    """Sockets and timer around one node."""

    def __init__(
        self,
        node: Node,
        on_deliver: Callable[[Deliver], None],
        on_subscribers: Callable[[], None],
        on_write: Callable[[LogRecord], None] | None,
        subscriptions: MutableMapping[SubscriptionId, Subscription],
        domain: str | None = None,
    ) -> None:
        self.node = node
        self.gate = Gate(node.seal)
        self.reports: dict[int, asyncio.Future[bytes]] = {}
        """Inspections under way, by token."""
        self.received = node.receive
        """A message arrived on a link."""
        self.queue = node.queue
        """What waits for a link."""
        self.wiring = Wiring(self, node.config, node.counters, self.gate, domain)
        self._room = self.wiring.room
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._on_subscribers = on_subscribers
        self._on_write = on_write
        self._on_deliver = on_deliver
        self._unwritten: list[DeliveredRun] = []
        """Delivered, not yet in the logs: that can wait until the application had its turn."""
        self._corked = False
        self._was_full = False
        self._perform: dict[type, Callable[..., None]] = {
            SendBundle: self._send_bundle,
            SendControl: self._send_control,
            Deliver: on_deliver if on_write is None else self._deliver,
            Write: self._write,
            Dial: self._dial,
            CloseLink: self._close_link,
            SubscribersChanged: self._subscribers_changed,
            Reported: self._reported,
        }
        self.assurances = Assurances(node, subscriptions, self.turn)
        self._perform.update(self.assurances.handlers())
        self.replying = Replying(self, subscriptions)
        self._perform.update(self.replying.handlers())
        node.recording = on_write is not None
        node.keep_bodies(keep)

    def perform_too(self, handlers: Mapping[type, Callable[[Any], None]]) -> None:
        """Who carries out further kinds of actions."""
        self._perform.update(handlers)

    def listen(self, addresses: Sequence[Address]) -> list[str]:
        """Bind; the real addresses."""
        return self.wiring.listen(addresses)

    def start(self) -> None:
        """Begin to dial and to serve."""
        self.node.start(time.monotonic())
        self.turn()

    def express(self, outlet: Outlet, payload: object) -> bool:
        """Send one small publication at once, if the loop is idle and it has one way to go."""
        if self._corked:
            return False
        now = time.monotonic()
        action = self.node.express(outlet, payload, now)
        if action is None:
            return False
        self.wiring.sending.send_bundle(action.link, action.bundle)
        self._corked = True
        self._loop.call_soon(self._uncork)
        return True

    def published(self, outlet: Outlet, is_full: bool) -> bool:
        """A publication was taken. Sends at once when the loop is idle, else once per turn or bundle; whether
        the publisher should `wait_for_room`."""
        if not is_full and self._corked:
            return False
        self._was_full = is_full
        now = time.monotonic()
        self.node.flush(now)
        self.turn()
        if not self._corked:
            self._corked = True
            self._loop.call_soon(self._uncork)
        if outlet.pause_until > now:
            return True
        return bool(self._room.congested) and (not outlet.deadline_us or self._room.is_lacking_for_urgent())

    async def wait_for_room(self, outlet: Outlet) -> None:
        """Until what the outlet publishes can be expected to find room, here and further on."""
        await asyncio.sleep(0)  # a stalled link holds nobody back, but the loop must go on
        await self._room.wait(outlet.deadline_us > 0)
        while not self.gate.shut:
            pause_s = self.node.pause_until(outlet) - time.monotonic()
            if pause_s <= 0:
                return
            await asyncio.sleep(pause_s)

    async def close(self, deadline_s: float) -> None:
        """Say farewell, flush what is queued, close every socket; done within about the deadline."""
        if self.gate.shut:
            return
        started = time.monotonic()
        self.node.flush(started)
        self.turn()
        await self.wiring.sending.flush(started + deadline_s / 2)
        self.node.leave(time.monotonic())
        self.turn()
        await self.wiring.sending.flush(started + deadline_s)
        self.gate.close(f"peer {self.node.peer} is closed")
        self.assurances.close(f"peer {self.node.peer} is closed")
        if self._timer is not None:
            self._timer.cancel()
        await self.replying.close()
        await self.wiring.close()

    # The one way out

    def turn(self) -> None:
        """Call after every input and command: do what the node wants done."""
        actions = self.node.take_actions()
        perform = self._perform
        while actions:
            for action in actions:
                perform[type(action)](action)
            actions = self.node.take_actions()
        self.wiring.sending.finish_turn()
        due = self.node.next_timeout()
        if due is not None and due != self._timer_at:
            self._arm_timer(due)

    def turn_soon(self) -> None:
        """For commands given in the middle of a turn."""
        self._loop.call_soon(lambda: None if self.gate.shut else self.turn())

    def _arm_timer(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._loop.call_later(max(0.0, due - time.monotonic()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at = 0.0
        if self.gate.shut:
            return
        now = time.monotonic()
        if self.node.judges_silence(now):
            self.wiring.read_all()
            now = time.monotonic()
            if self.wiring.is_paused:
                self.node.excuse_silence(now)
        self.node.handle_timeout(now)
        self.turn()

    def _uncork(self) -> None:
        if self.gate.shut:
            return
        if self._was_full:  # a publisher that fills bundles gains nothing from one sent early
            self._was_full = False
            self._loop.call_soon(self._uncork)
            return
        self._corked = False
        if self.node.has_unsent:
            self.node.flush(time.monotonic())
            self.turn()
        else:
            self.wiring.sending.finish_turn()
            due = self.node.next_timeout()
            if due is not None and due != self._timer_at:
                self._arm_timer(due)

    # What the wiring reports

    def opened(self, link: LinkId, address: str | None, binding: bytes) -> None:
        """A connection stands."""
        self.node.link_opened(link, time.monotonic(), address, binding)

    def is_proven(self, link: LinkId) -> bool:
        """Whether its hello was accepted."""
        known = self.node.links.get(link)
        return known is not None and bool(known.peer)

    def closed(self, link: LinkId) -> None:
        """A connection is gone."""
        self.node.link_closed(link, time.monotonic())

    def dial_failed(self, address: str) -> None:
        """A connection did not come about."""
        if not self.gate.shut:
            self.node.dial_failed(address, time.monotonic())
            self.turn()

    def backlog(self, link: LinkId, backlog_s: float) -> None:
        """A link takes less than it is given, or keeps up again."""
        self.node.link_backlog(link, backlog_s)

    # Actions

    def _send_bundle(self, action: SendBundle) -> None:
        self.wiring.sending.send_bundle(action.link, action.bundle)

    def _send_control(self, action: SendControl) -> None:
        self.wiring.sending.send_control(action.link, action.frame)

    def _deliver(self, action: Deliver) -> None:
        self._on_deliver(action)
        if not self._unwritten:
            self._loop.call_soon(self._write_deliveries)
        self._unwritten.append(action.run)

    def _write_deliveries(self) -> None:
        runs, self._unwritten = self._unwritten, []
        assert self._on_write is not None
        for run in runs:
            self._on_write(self.node.delivery_record(run))

    def _write(self, action: Write) -> None:
        if self._on_write is not None:
            self._on_write(action.record)

    def _dial(self, action: Dial) -> None:
        self.wiring.dial(action.address)

    def _close_link(self, action: CloseLink) -> None:
        self.wiring.close_link(action.link)

    def _subscribers_changed(self, action: SubscribersChanged) -> None:
        del action
        self._on_subscribers()

    def _reported(self, action: Reported) -> None:
        future = self.reports.pop(action.token, None)
        if future is not None and not future.done():
            future.set_result(action.document)
