"""What one direction of an emulated link does to packets: when each is due, which are lost. Has no clock.

Used by `wan.py`, once per pair of hosts that talk; the simulator's wires do the same in virtual time.
"""

import random

from anabranch.transport.simulator import Conditions

BUFFER_MAX_BYTES = 256 * 1024
"""What waits for a link with a limited rate at most, as in a router; what comes on top is lost."""


class Channel:
    """One direction. `due` for every packet, in the order of their coming."""

    __slots__ = ("carried", "conditions", "free_at", "is_plain", "last_due", "lost", "lost_last")

    def __init__(self, conditions: Conditions) -> None:
        self.carried = 0
        """Packets that arrive."""
        self.lost = 0
        self.lost_last = False
        """Losses may come in bursts."""
        self.free_at = 0.0
        """When the rate lets the next packet go."""
        self.last_due = 0.0
        self.set(conditions)

    def set(self, conditions: Conditions) -> None:
        """From now on; what is under way arrives as it would have."""
        self.conditions = conditions
        self.is_plain = conditions.is_plain

    def due(self, size: int, now: float, rng: random.Random) -> float | None:
        """When a packet that comes now shall leave; None when it is lost."""
        conditions = self.conditions
        if self.is_plain:
            at = now + conditions.delay_s
        else:
            left = now
            if conditions.blackhole:
                self.lost += 1
                return None
            if conditions.rate_bytes_s is not None:
                waiting = max(0.0, self.free_at - now) * conditions.rate_bytes_s
                if waiting + size > BUFFER_MAX_BYTES:
                    self.lost += 1
                    return None
                left = self.free_at = max(now, self.free_at) + size / conditions.rate_bytes_s
            if conditions.loss:
                self.lost_last = conditions.is_lost(rng, self.lost_last)
                if self.lost_last:
                    self.lost += 1
                    return None
            at = left + conditions.travel_s(rng)
            if conditions.reorder and rng.random() < conditions.reorder:
                self.carried += 1
                return at + conditions.held_back_s(rng)
        self.carried += 1
        if at < self.last_due:
            at = self.last_due
        self.last_due = at
        return at
