"""One direction of a connection between two simulated peers: its queue, and when what it carries arrives."""

import random
from typing import TYPE_CHECKING

from anabranch.overlay.codec import Frame
from anabranch.overlay.identifiers import LinkId
from anabranch.overlay.queues import LinkQueue

if TYPE_CHECKING:
    from anabranch.transport.simulator.conditions import Conditions
    from anabranch.transport.simulator.shell import Shell

UNREAD_MAX_BYTES = 512 * 1024
"""What a paused peer's socket takes in before the sender has to wait, as a TCP window does."""


class Wire:
    """From `source` to `target`. Frames keep their order, as on TCP, unless the conditions reorder them."""

    __slots__ = (
        "back",
        "conditions",
        "delay_s",
        "free_at",
        "is_open",
        "is_plain",
        "last_arrival",
        "lost_last",
        "pumping",
        "queue",
        "receive",
        "resetting",
        "source",
        "source_link",
        "target",
        "target_link",
        "unread",
    )

    def __init__(
        self, source: "Shell", source_link: LinkId, target: "Shell", conditions: "Conditions", queue_max: int
    ) -> None:
        self.source = source
        self.source_link = source_link
        self.target = target
        self.receive = target.receive
        """What happens when a frame arrives; looked up once, as every frame needs it."""
        self.target_link = LinkId(-1)
        """Number of the link at the target; -1 until it accepted the connection."""
        self.back: Wire = self
        """The other direction."""
        self.queue = LinkQueue(queue_max)
        self.is_open = True
        """Whether the target's end still takes frames."""
        self.pumping = False
        """Whether a look at the queue is scheduled."""
        self.resetting = False
        """Whether the source is about to learn that the target's end is gone."""
        self.unread = 0
        """Bytes that wait for a paused target."""
        self.free_at = 0.0
        """When the rate limit lets the next frame go."""
        self.last_arrival = 0.0
        self.lost_last = False
        """Whether the last frame vanished: losses may come in bursts."""
        self.set_conditions(conditions)

    def set_conditions(self, conditions: "Conditions") -> None:
        """The network between the two peers changed; what is under way already is not affected."""
        self.conditions = conditions
        self.delay_s = conditions.delay_s
        self.is_plain = conditions.is_plain

    def arrival(self, size: int, now: float, rng: random.Random) -> float | None:
        """When a frame that leaves now arrives; None when it never does."""
        if self.is_plain:
            at = now + self.delay_s
            if at < self.last_arrival:
                return self.last_arrival
            self.last_arrival = at
            return at
        conditions = self.conditions
        left = now
        if conditions.rate_bytes_s is not None:
            left = self.free_at = max(now, self.free_at) + size / conditions.rate_bytes_s
        if conditions.blackhole:
            return None
        if conditions.loss:
            self.lost_last = conditions.is_lost(rng, self.lost_last)
            if self.lost_last:
                return None
        at = left + conditions.travel_s(rng)
        if conditions.reorder and rng.random() < conditions.reorder:
            # Not before the connection itself, which is the first thing to arrive.
            return max(at + conditions.held_back_s(rng), self.last_arrival if self.target_link < 0 else 0.0)
        self.last_arrival = max(at, self.last_arrival)
        return self.last_arrival


def total_size(frames: list[Frame]) -> int:
    """Bytes of a message on the wire."""
    return sum(map(len, frames))
