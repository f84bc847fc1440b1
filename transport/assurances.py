"""The shell's side of guarantees: carries out what the node asks for streams that must be confirmed."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from anabranch.overlay.actions import DeliverAssured, Settled
from anabranch.overlay.assured import StreamKey
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.node import Node
from anabranch.overlay.outstreams import OutStream
from anabranch.transport.confirmations import Confirmations
from anabranch.transport.subscription import Subscription

Handlers = dict[type, Callable[[Any], None]]


class Assurances:
    """One peer's streams with a guarantee, in both directions."""

    def __init__(self, node: Node, subscriptions: Mapping[SubscriptionId, Subscription]) -> None:
        self._node = node
        self._subscriptions = subscriptions
        self._confirmations: dict[StreamKey, Confirmations] = {}

    def handlers(self) -> Handlers:
        """What to call for which action."""
        return {DeliverAssured: self._deliver, Settled: self._settled}

    def confirmations(self, stream: OutStream) -> Confirmations:
        """Where receipts of this stream are kept."""
        found = self._confirmations.get(stream.key)
        if found is None:
            found = self._confirmations[stream.key] = Confirmations(stream)
        return found

    def close(self, refusal: str) -> None:
        """Whoever waits for a confirmation is told that none will come."""
        for each in self._confirmations.values():
            each.end(refusal)

    def _deliver(self, action: DeliverAssured) -> None:
        found = [self._subscriptions[each] for each in action.subscriptions if each in self._subscriptions]
        run = action.run
        count = self._node.hand(run, min((each.room for each in found), default=0), time.monotonic())
        if not count:
            return
        if count < len(run.payloads):
            run = msgspec.structs.replace(run, payloads=run.payloads[:count])
        for each in found:
            each.offer(run)

    def _settled(self, action: Settled) -> None:
        known = self._confirmations.get(action.stream)
        if known is None:
            return
        known.settled(action)
        if known.stream.is_closed and not known.stream.key.durable and known.is_done:
            del self._confirmations[action.stream]
