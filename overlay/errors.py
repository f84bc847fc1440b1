"""The exceptions of the project and the reasons why a frame was dropped.

`UsageError` is our caller's mistake and is raised to them. `PeerError` is another peer's fault: the node
turns it into a counted drop, it never reaches an application.
"""

import enum


class AnabranchError(Exception):
    """The root of every exception this project raises on purpose."""


class UsageError(AnabranchError):
    """What the caller passed cannot work; the text names the input and the fix."""


class ExpressionError(UsageError):
    """An expression that cannot be: `column` says where, counted from 1."""

    def __init__(self, text: str, column: int, what: str) -> None:
        shown = text if len(text) <= 80 else text[:77] + "..."
        super().__init__(f"expression {shown!r}, column {column}: {what}")
        self.column = column
        self.what = what


class ClosedError(AnabranchError):
    """The peer, publisher or subscription was closed (or its process forked)."""


class LimitError(AnabranchError):
    """A limit that was set is reached, and the overflow policy is not to wait."""


class StoreError(AnabranchError):
    """The store could not do what it was asked: nothing of it was done."""


class PeerError(AnabranchError):
    """Another peer sent something that breaks the protocol."""

    def __init__(self, reason: "DropReason", detail: str = "") -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)
        self.reason = reason
        self.detail = detail


class DropReason(enum.StrEnum):
    """Why a frame ended its way. Each is a counter `dropped.<reason>`."""

    MALFORMED = "malformed"
    """Not decodable as what its kind byte claims."""
    VERSION = "version"
    """Another wire version, or an unknown kind."""
    OVERSIZED = "oversized"
    """Larger than `payload_max_bytes` plus room for the header allows."""
    NO_SESSION = "no_session"
    """Data or control on a link whose hello has not been completed."""
    REPLAYED = "replayed"
    """A hop sequence that this link already carried."""
    DUPLICATE = "duplicate"
    """A publication that was already delivered here."""
    OUT_OF_ORDER = "out_of_order"
    """A publication that arrived after a later one of its publisher had been delivered."""
    NO_ROUTE = "no_route"
    """No usable path to a peer that wants it."""
    NO_LINK = "no_link"
    """The source route names a next peer to which this peer has no link."""
    NO_SUBSCRIBER = "no_subscriber"
    """Arrived where nobody wants it (any more)."""
    NOT_SELECTED = "not_selected"
    """Addressed to other sites than this one is by now, or no filter here wants it."""
    QUEUE_FULL = "queue_full"
    """The link queue had no room: the neighbour takes less than it is sent."""
    SUBSCRIPTION_FULL = "subscription_full"
    """The application reads slower than messages arrive; its overflow policy chose this one."""
    SIGNATURE = "signature"
    """A record whose signature does not hold."""
    FORGED = "forged"
    """A bundle, or a reply in one, that its origin did not seal for us: made up, changed, or too old."""
    UNKNOWN_KEY = "unknown_key"
    """A bundle whose origin's key for seals has not been heard of."""
    UNTRUSTED = "untrusted"
    """A hello without the proof of its name: no certificate of this mesh, an expired or revoked one, or one
    that does not belong to the connection."""
    DENIED = "denied"
    """Published to a restricted topic without the right to, or no longer with it."""
    ASKS_TOO_OFTEN = "asks_too_often"
    """A question of a peer that asks more than `questions_rate_max` times per second."""
    STALE = "stale"
    """A record older than the one already held, or past its lifetime."""
    RATE = "rate"
    """Put faster than its publisher's `rate_max` allows, with an overflow policy other than `block`."""
    QUEUED = "queued"
    """Put while its publisher's `queued_max_bytes` waited, with another overflow policy than `block`."""
    TABLE_FULL = "table_full"
    """A bounded table had no room for the newcomer."""
    CONFLICT = "conflict"
    """Claims the name of another live peer, or our own."""
    LINK_LOST = "link_lost"
    """Was waiting in the queue of a link that went down, and no other way led on."""
    UNRECOVERED = "unrecovered"
    """Was sent over a link that went down before it was acknowledged, and no other way led on: it may have
    arrived."""
