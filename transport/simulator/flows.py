"""Applications that publish at a steady rate."""

from typing import TYPE_CHECKING

from anabranch.overlay.errors import UsageError
from anabranch.overlay.qos import Demand
from anabranch.transport.simulator.engine import Engine

if TYPE_CHECKING:
    from anabranch.transport.simulator.peers import SimPeer

COUNTER_BYTES = 8
"""Each payload begins with its number, so that no two are alike."""


class Flow:
    """One publisher at a rate. While its peer is crashed or paused, it skips its turns."""

    def __init__(
        self,
        peer: "SimPeer",
        topic: str,
        rate: float,
        size: int,
        stop: float,
        demand: Demand,
        engine: Engine,
    ) -> None:
        if not 0 < rate <= 1e6:
            raise UsageError(f"rate = {rate}: messages per second, above 0 and at most 1,000,000")
        if not 0 <= size <= peer.config.payload_max_bytes:
            raise UsageError(f"size = {size}: bytes, from 0 to {peer.config.payload_max_bytes}")
        self.peer = peer
        self.topic = topic
        self.rate = rate
        self.stop = stop
        self.demand = demand
        self.sent = 0
        self.skipped = 0
        """Turns at which the peer was not running."""
        self._size = size
        self._padding = bytes(max(0, size - COUNTER_BYTES))
        self._engine = engine
        self._begin = 0.0
        self._turns = 0

    def begin(self, time: float) -> None:
        """Schedule the first publication."""
        self._begin = time
        self._engine.at(time, self._turn)

    def end(self) -> None:
        """Publish no more."""
        self.stop = self._engine.now

    def _turn(self, time: float, _: None, __: None) -> None:
        if time >= self.stop:
            return
        if self.peer.is_running:
            payload = (self._turns.to_bytes(COUNTER_BYTES, "big") + self._padding)[: self._size]
            self.peer.publish(self.topic, (payload,), self.demand, time)
            self.sent += 1
        else:
            self.skipped += 1
        self._turns += 1
        self._engine.at(self._begin + self._turns / self.rate, self._turn)
