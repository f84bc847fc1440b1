"""Which links have no room but make progress: publishers that can wait, wait for those."""

import asyncio
import time
from collections.abc import Mapping

from anabranch.overlay.config import Config
from anabranch.overlay.identifiers import LinkId
from anabranch.transport.connections import Connection
from anabranch.transport.gate import Gate

STALL_S = 0.5
"""A link that took nothing for this long no longer holds publishers back. Longer than a blocking subscription
keeps its peer from reading, shorter than the silence that makes a link suspect."""

LOOK_S = 0.1
"""How long to wait for a change before looking anyway."""


class Room:
    """Looks at the queues of all connections; the wiring tells when they changed."""

    def __init__(self, connections: Mapping[LinkId, Connection], config: Config, gate: Gate) -> None:
        self.high_water_bytes = max(config.bundle_max_bytes, config.link_queue_max_bytes // 8)
        """A link whose queue holds more is congested; until it holds half of that."""
        self.flooded_bytes = config.link_queue_max_bytes // 2
        """Beyond this a relay takes in nothing more for a moment."""
        self.congested: set[LinkId] = set()
        self.changed = asyncio.Event()
        self._connections = connections
        self._gate = gate

    def is_lacking(self, link: LinkId) -> bool:
        """Whether a link has much waiting, and makes progress."""
        connection = self._connections.get(link)
        if connection is None or connection.queue.bytes <= self.high_water_bytes // 2:
            return False
        return not connection.blocked_since or time.monotonic() - connection.blocked_since < STALL_S

    def relieved(self) -> list[LinkId]:
        """Links that were congested and hold nobody back any more."""
        gone = [link for link in self.congested if not self.is_lacking(link)]
        self.congested.difference_update(gone)
        if not self.congested:
            self.changed.set()
        return gone

    def is_lacking_for_urgent(self) -> bool:
        """Whether a congested link holds too much even of what has a deadline."""
        found = (self._connections.get(link) for link in self.congested)
        return any(connection is not None and connection.queue.is_full_of_urgent for connection in found)

    async def wait(self, urgent: bool) -> None:
        """Until the links that are congested now have room, are stalled, or gone."""
        links = set(self.congested)
        while any(self._is_lacking_for_us(link) for link in links) and not self._gate.shut:
            if urgent and not self.is_lacking_for_urgent():
                return
            await self.wait_for_change(LOOK_S)

    def _is_lacking_for_us(self, link: LinkId) -> bool:
        """Whether it has no room, and what is ours takes its share of what there is."""
        connection = self._connections.get(link)
        return connection is not None and connection.queue.is_crowded_by("") and self.is_lacking(link)

    async def wait_for_change(self, timeout_s: float) -> None:
        """Until some queue got shorter, or the time is over."""
        self.changed.clear()
        try:
            await asyncio.wait_for(self.changed.wait(), min(timeout_s, LOOK_S))
        except TimeoutError:
            return
