"""What an application may ask of a topic, and the variants of routing that serve it."""

import enum
from typing import NamedTuple


class Variant(enum.StrEnum):
    """How a publisher's peer chooses paths (the versions of Harmony's evaluation, sections 2.1 to 2.3)."""

    DP = "dp"
    """Direct path: the link to the receiver, or nothing."""
    BP = "bp"
    """Best path: the shortest by measured delay, switched only for a gain past the threshold."""
    BP_QOS = "bp+qos"
    """Best path with delay budgets: a link that takes more than its share of the deadline is left at once."""
    BP_QOS_MP = "bp+qos+mp"
    """The same over two paths at a time, disjoint where they can be."""
    ADAPTIVE = "adaptive"
    """Budgets, and a second path only while the first one is in trouble."""

    @property
    def has_budgets(self) -> bool:
        """Whether deadlines are split into budgets for the links of a path."""
        return self not in (Variant.DP, Variant.BP)


class Demand(NamedTuple):
    """What a publisher asks of the paths to its receivers; zeros ask for nothing."""

    deadline_s: float = 0.0
    """From put to arrival."""
    availability: float = 0.0
    """Share of time in which at least one path shall work."""
    variant: Variant | None = None
    """Which path selection it uses, if not that of its peer."""


BEST_EFFORT = Demand()


class Guarantee(enum.StrEnum):
    """What a publisher is promised about the way to its receivers."""

    BEST_EFFORT = "best_effort"
    """Sent once; what is lost on the way and not repaired there stays lost."""
    ACKNOWLEDGED = "acknowledged"
    """Sent again until each receiver confirms it or the time is over; the publisher learns which."""
    PERSISTENT = "persistent"
    """Written to a store before `put` returns, and kept until durable subscriptions have accepted it."""


class Unconfirmed(enum.StrEnum):
    """Why a receiver did not confirm."""

    OUTSTANDING = "outstanding"
    """It may still."""
    SILENT = "silent"
    """No confirmation came in time, though a path leads there."""
    UNREACHED = "unreached"
    """No path led there."""
    BUSY = "busy"
    """Its application had no room for it in time."""
    LEFT = "left"
    """It cancelled its subscription, left or restarted before it confirmed."""
    NO_SUBSCRIBER = "no_subscriber"
    """It arrived where nobody wanted it any more."""
    NOT_SELECTED = "not_selected"
    """When it arrived, the site was no longer one of those that it was for."""
    EXPIRED = "expired"
    """It waited in the store for longer than that keeps messages."""
    DAMAGED = "damaged"
    """The store could not give it back."""


class Overflow(enum.StrEnum):
    """What happens when a bounded queue has no room."""

    DROP_OLDEST = "drop_oldest"
    """Make room by dropping from the front: fresh data matters most."""
    DROP_NEWEST = "drop_newest"
    """Refuse the newcomer: what was accepted stays."""
    BLOCK = "block"
    """Hold the sender back for a bounded time, then drop the newest."""


class LinkState(enum.StrEnum):
    """A link as its own peer sees it."""

    OPENING = "opening"
    """Connected, the hello is not complete."""
    UP = "up"
    SUSPECT = "suspect"
    """Silent for longer than it should be: avoided here, not yet announced."""
    DOWN = "down"
    """Given up; announced to the mesh."""


class Role(enum.StrEnum):
    """What a node does in the mesh."""

    PEER = "peer"
    """Routes, relays, keeps the mesh's records."""
    CLIENT = "client"
    """A light client: attached to one peer, relays nothing, keeps only interests."""
