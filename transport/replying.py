"""Requests and replies between the node and the application of one peer, ways past the mesh included."""

import asyncio
import threading
import time
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING

from anabranch.overlay.actions import (
    DeliveredRequest,
    DeliveredRun,
    DeliverRequest,
    HarvestOver,
    RepliesArrived,
    SendAside,
    SnapshotTaken,
)
from anabranch.overlay.asking import Protocol, expectation
from anabranch.overlay.codec import encode_payload
from anabranch.overlay.errors import UsageError
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.outlets import Outlet
from anabranch.transport.aside import Aside
from anabranch.transport.harvest import Harvest
from anabranch.transport.subscription import Subscription

if TYPE_CHECKING:
    from anabranch.transport.shell import Shell

TAU_S = 1.0
"""Silence after which `publish`, `direct` and `datagram` give up, unless the request says otherwise."""
OUTLETS_MAX = 256
TOPIC = "anabranch/replies/"


class Replying:
    """What a peer's application asked, and was asked."""

    def __init__(self, shell: "Shell", subscriptions: MutableMapping[SubscriptionId, Subscription]) -> None:
        self._shell = shell
        self._subscriptions = subscriptions
        self._harvests: dict[int, Harvest] = {}
        self._inbox: SubscriptionId | None = None
        self._outlets: dict[str, Outlet] = {}
        self._turns_soon = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.aside = Aside(self._arrived)

    def handlers(self) -> dict[type, Callable[..., None]]:
        """What carries out the node's actions about replies."""
        return {
            DeliverRequest: self._deliver,
            RepliesArrived: self._came,
            HarvestOver: self._over,
            SnapshotTaken: self._polled,
            SendAside: self._send_aside,
        }

    async def request(
        self,
        topic: str,
        payload: object,
        *,
        protocol: str | Protocol | None,
        merge: str,
        expects: object,
        within: float,
        tau: float | None,
        to: str | None,
        host: str,
    ) -> Harvest:
        """Publish and ask for replies."""
        try:
            how = Protocol(protocol) if protocol is not None else None
        except ValueError:
            raise UsageError(f"protocol = {protocol!r}: one of {', '.join(Protocol)}") from None
        if tau is not None and not tau > 0:
            raise UsageError(f"tau = {tau}: seconds of silence, above 0")
        encode_payload(payload)
        tau_s = tau or 0.0
        reply_to = ""
        if how is not None and not how.is_repaired:
            tau_s = tau_s or TAU_S
            reply_to = self._open_inbox() if how is Protocol.PUBLISH else await self.aside.open(how, host)
        harvest = Harvest(self._shell, topic)
        number = self._shell.node.request(
            topic,
            bytes(payload) if isinstance(payload, bytearray | memoryview) else payload,
            time.monotonic(),
            protocol=how,
            merge=merge,
            expects=[expectation(expects)],
            within_s=within,
            tau_s=tau_s,
            to=to,
            reply_to=reply_to,
        )
        harvest.number = number
        self._harvests[number] = harvest
        self._shell.turn()
        return harvest

    def reply(self, run: DeliveredRun, value: object) -> bool:
        """A subscriber answers; from any thread."""
        if isinstance(value, bytearray | memoryview):
            value = bytes(value)
        return self._answer(run, value, False)

    def decline(self, run: DeliveredRun) -> bool:
        """A subscriber will not answer; from any thread."""
        return self._answer(run, None, True)

    def _answer(self, run: DeliveredRun, value: object, declines: bool) -> bool:
        self._shell.gate.check()
        if threading.get_ident() != self._thread:
            return asyncio.run_coroutine_threadsafe(self._answered(run, value, declines), self._loop).result()
        assert isinstance(run, DeliveredRequest)
        node, now = self._shell.node, time.monotonic()
        if declines:
            was_wanted = node.decline(run.key, run.subscriber, now)
        else:
            was_wanted = node.reply(run.key, run.subscriber, value, now)
        self._turn_soon()
        return was_wanted

    async def _answered(self, run: DeliveredRun, value: object, declines: bool) -> bool:
        return self._answer(run, value, declines)

    def _turn_soon(self) -> None:
        """What is said within one turn of the loop leaves together."""
        if not self._turns_soon:
            self._turns_soon = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turns_soon = False
        if not self._shell.gate.shut:
            self._shell.turn()

    async def close(self) -> None:
        """The peer is closed."""
        for harvest in list(self._harvests.values()):
            harvest.abandon()
        self._harvests.clear()
        await self.aside.close()

    # Actions

    def _deliver(self, action: DeliverRequest) -> None:
        subscription = self._subscriptions.get(action.subscription)
        run = action.run
        if subscription is None:
            return
        run.replying = self
        subscription.offer(run)

    def _came(self, action: RepliesArrived) -> None:
        harvest = self._harvests.get(action.number)
        if harvest is not None:
            harvest.came(action.replies)

    def _over(self, action: HarvestOver) -> None:
        harvest = self._harvests.pop(action.number, None)
        if harvest is not None:
            harvest.over(action.result)

    def _polled(self, action: SnapshotTaken) -> None:
        harvest = self._harvests.get(action.number)
        if harvest is not None:
            harvest.polled(action.token, action.result)

    def _send_aside(self, action: SendAside) -> None:
        if action.protocol is Protocol.PUBLISH:
            self._publish(action.address, action.frame)
        elif not self.aside.send(action.protocol, action.address, action.frame):
            self._shell.node.counters.add("replies_unsent")

    # Ways past the mesh

    def _arrived(self, frame: bytes) -> None:
        if not self._shell.gate.shut:
            self._shell.node.arrived_aside(frame, time.monotonic())
            self._turn_soon()

    def _open_inbox(self) -> str:
        topic = TOPIC + self._shell.node.peer
        if self._inbox is None:
            self._inbox = self._shell.node.subscribe(topic, time.monotonic())
            self._subscriptions[self._inbox] = _Inbox(self._arrived)  # type: ignore[assignment]
        return topic

    def _publish(self, topic: str, frame: bytes) -> None:
        node = self._shell.node
        outlet = self._outlets.get(topic)
        if outlet is None:
            try:
                if not topic.startswith(TOPIC) or len(self._outlets) >= OUTLETS_MAX:
                    raise UsageError(f"replies to {topic[:64]!r}")
                outlet = self._outlets[topic] = node.open_publisher(topic, time.monotonic())
            except UsageError:  # what the publisher named, or too many publishers here
                node.counters.add("replies_unsent")
                return
        node.publish(outlet, frame, len(frame), time.monotonic())
        self._shell.published(outlet, False)


class _Inbox:
    """Takes published replies as a subscription takes messages."""

    def __init__(self, arrived: Callable[[bytes], None]) -> None:
        self._arrived = arrived

    def offer(self, run: DeliveredRun) -> None:
        loop = asyncio.get_running_loop()
        for frame in run.payloads:
            if isinstance(frame, bytes):
                loop.call_soon(self._arrived, frame)

    def close(self) -> None:
        """Nothing to end."""
