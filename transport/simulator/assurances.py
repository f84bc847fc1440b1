"""Publishers with a guarantee in a simulation; every confirmation is checked against what truly arrived."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from anabranch.overlay.actions import Action, DeliverAssured, Settled
from anabranch.overlay.assured import StreamKey
from anabranch.overlay.codec import encode_payload
from anabranch.overlay.outstreams import OutStream
from anabranch.overlay.patterns import matches
from anabranch.overlay.qos import Unconfirmed
from anabranch.transport.simulator.ledger import BrokenPromiseError, Ledger, Published

if TYPE_CHECKING:
    from anabranch.transport.simulator.shell import Shell


class SimPublisher:
    """An acknowledged publisher. Ends with the crash of its peer."""

    def __init__(
        self, peer: "Shell", stream: OutStream, publisher: int, topic: str, deadline_s: float, ledger: Ledger
    ) -> None:
        self.stream = stream
        self.published: Published = ledger.open(peer.name, publisher, peer.incarnation, topic, 0, deadline_s)
        self.published.is_selected = stream.only is not None
        self.selections: dict[StreamKey, SimPublisher] = {}
        """What it put for selected receivers: a stream for each set of them."""
        self.receivers: list[tuple[str, ...]] = []
        """Of each message, by sequence."""
        self.settled = 0
        """All before it are settled."""
        self.missing: dict[int, dict[str, Unconfirmed]] = {}
        """Of settled messages: who did not confirm, and why."""
        self._peer = peer
        self._ledger = ledger

    def put(self, payload: object, time: float) -> int:
        """Publish one message; its sequence."""
        peer = self._peer
        encoded, size = encode_payload(payload)
        self._ledger.put(self.published, payload, time)
        sequence = peer.node.publish_assured(self.stream, encoded, size, peer.clock(time))
        self.receivers.append(self.stream.names)
        return sequence

    def select(
        self, payload: object, attributes: Mapping[str, object] | None, to: str | None, time: float
    ) -> "SimPublisher":
        """Publish one message for selected receivers; the stream that it is the last of."""
        peer, published = self._peer, self.published
        encoded, size = encode_payload(payload)
        stream, _ = peer.node.select_assured(self.stream, encoded, size, attributes, to, peer.clock(time))
        chosen = self.selections.get(stream.key)
        if chosen is None:
            number, topic = stream.key.publisher, published.topic
            chosen = SimPublisher(peer, stream, number, topic, published.deadline_s, self._ledger)
            self.selections[stream.key] = peer.assured[stream.key] = chosen
        self._ledger.put(chosen.published, payload, time)
        chosen.receivers.append(stream.names)
        return chosen

    def settle(self, action: Settled) -> None:
        """Take what the node says; BrokenPromiseError if it confirms what did not arrive."""
        for failure in action.failures:
            for sequence in range(failure.first, failure.end):
                self.missing.setdefault(sequence, {})[failure.peer] = failure.reason
        for sequence in range(self.settled, action.floor):
            missing = self.missing.get(sequence, {})
            for peer in self.receivers[sequence]:
                if peer not in missing and not self._has_arrived(peer, sequence):
                    raise BrokenPromiseError(
                        f"{self._peer.name} was told that {peer} confirmed {self.published.topic!r} number "
                        f"{sequence}: it did not arrive there"
                    )
        self.settled = action.floor

    def confirmed(self, sequence: int) -> tuple[str, ...]:
        """Who confirmed a settled message."""
        return tuple(name for name in self.receivers[sequence] if name not in self.missing.get(sequence, {}))

    def _has_arrived(self, peer: str, sequence: int) -> bool:
        return any(
            sequence in received.sequences
            for subscription in self._ledger.subscriptions
            if subscription.peer == peer and matches(subscription.pattern, self.published.topic)
            if (received := subscription.received.get(self.published.key)) is not None
        )


def act(peer: "Shell", action: Action, ledger: Ledger, time: float) -> None:
    """Carry out what a node asks for streams with a guarantee."""
    if isinstance(action, DeliverAssured):
        _hand_over(peer, action, ledger, time)
    elif isinstance(action, Settled) and (publisher := peer.assured.get(action.stream)) is not None:
        publisher.settle(action)


def _hand_over(peer: "Shell", action: DeliverAssured, ledger: Ledger, time: float) -> None:
    subscriptions = [peer.subscriptions[each] for each in action.subscriptions if each in peer.subscriptions]
    room = min((each.room for each in subscriptions), default=0.0)
    count = peer.node.hand(action.run, int(min(room, 2**30)), peer.clock(time))
    if not count:
        return
    run = action.run
    if count < len(run.payloads):
        run = msgspec.structs.replace(run, payloads=run.payloads[:count])
    for each in subscriptions:
        each.room -= count
        ledger.deliver(each, run, time)
