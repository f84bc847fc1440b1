"""The shell's side of guarantees: carries out what the node asks for streams that must be confirmed."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from anabranch.overlay.actions import AssuredDelivery, DeliverAssured, Settled
from anabranch.overlay.assured import StreamKey
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.node import Node
from anabranch.overlay.outstreams import OutStream
from anabranch.transport.confirmations import Confirmations
from anabranch.transport.subscription import Subscription

LOOK_EVERY_S = 0.01
"""How often a subscription that had no room for a guaranteed message is looked at."""

Handlers = dict[type, Callable[[Any], None]]


class Assurances:
    """One peer's streams with a guarantee, in both directions."""

    def __init__(
        self, node: Node, subscriptions: Mapping[SubscriptionId, Subscription], turn: Callable[[], None]
    ) -> None:
        self._node = node
        self._is_closed = False
        self._subscriptions = subscriptions
        self._loop = asyncio.get_running_loop()
        self._turn = turn
        self._crowded: dict[int, tuple[AssuredDelivery, list[Subscription]]] = {}
        """By its intake: the run that was cut short, and the subscriptions that had no room."""
        self._confirmations: dict[StreamKey, Confirmations] = {}

    def handlers(self) -> Handlers:
        """What to call for which action."""
        return {DeliverAssured: self._deliver, Settled: self._settled}

    def confirmations(self, stream: OutStream) -> Confirmations:
        """Where receipts of this stream are kept."""
        found = self._confirmations.get(stream.key)
        if found is None:
            self._confirmations = {key: each for key, each in self._confirmations.items() if not each.is_over}
            found = self._confirmations[stream.key] = Confirmations(stream)
        return found

    def close(self, refusal: str) -> None:
        """Whoever waits for a confirmation is told that none will come."""
        self._is_closed = True
        for each in self._confirmations.values():
            each.end(refusal)

    def _deliver(self, action: DeliverAssured) -> None:
        found = [self._subscriptions[each] for each in action.subscriptions if each in self._subscriptions]
        run = action.run
        count = self._node.hand(run, min((each.room for each in found), default=0), time.monotonic())
        if run.intake.is_busy and found:
            self._watch(run, found)
        if not count:
            return
        if count < len(run.payloads):
            run = msgspec.structs.replace(run, payloads=run.payloads[:count])
        for each in found:
            each.offer(run)

    def _watch(self, run: AssuredDelivery, subscriptions: list[Subscription]) -> None:
        if not self._crowded:
            self._loop.call_later(LOOK_EVERY_S, self._look)
        self._crowded[id(run.intake)] = run, subscriptions

    def _look(self) -> None:
        """Tell the publishers whose messages found no room that there is some."""
        if self._is_closed:
            return
        now = time.monotonic()
        for key, (run, subscriptions) in list(self._crowded.items()):
            if all(each.has_much_room for each in subscriptions):
                del self._crowded[key]
                self._node.has_room(run, now)
        self._turn()
        if self._crowded:
            self._loop.call_later(LOOK_EVERY_S, self._look)

    def _settled(self, action: Settled) -> None:
        known = self._confirmations.get(action.stream)
        if known is None:
            return
        known.settled(action)
        if known.is_over:
            del self._confirmations[action.stream]
