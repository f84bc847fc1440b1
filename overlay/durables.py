"""Durable subscriptions: our own with how far each got, and those that other peers told of.

Own ones live in the shell's store; this is what the core has to know of them. Decides nothing.
"""

from collections.abc import Iterable, Mapping

import msgspec

from anabranch.overlay.assured import StreamKey
from anabranch.overlay.errors import DropReason, PeerError
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.patterns import matches

PositionKey = tuple[str, StreamKey]
"""(origin, stream)."""
DURABLES_MAX = 1024
"""Durable subscriptions that one peer may tell of."""


class DurableEntry(msgspec.Struct, frozen=True, array_like=True):
    """One durable subscription in a DURABLES record."""

    name: str
    pattern: str
    is_open: bool
    """Whether an application reads it now."""
    is_forgotten: bool = False
    """It will not come back: nothing is kept for it any more."""
    also_plain: bool = False
    """Whether another, plain subscription of that peer has the same pattern."""


class OwnDurable(msgspec.Struct):
    """One of our application's durable subscriptions."""

    name: str
    pattern: str
    positions: dict[PositionKey, int]
    """The next message to be accepted, by stream."""
    subscription: SubscriptionId | None = None
    """While it is open."""
    is_forgotten: bool = False


_decoder = msgspec.msgpack.Decoder(list[DurableEntry])


def decode_durables(body: bytes) -> list[DurableEntry]:
    """The body of a DURABLES record."""
    try:
        return _decoder.decode(body)[:DURABLES_MAX]
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise PeerError(DropReason.MALFORMED, f"durables: {error}") from None


class Durables:
    """All that this peer knows of. `version` grows with every change."""

    def __init__(self) -> None:
        self.version = 0
        self.own: dict[str, OwnDurable] = {}
        self.plain: frozenset[str] = frozenset()
        """Patterns of our application's other subscriptions."""
        self._others: dict[str, dict[str, DurableEntry]] = {}

    def set_others(self, peer: str, entries: Iterable[DurableEntry]) -> None:
        """Take a peer's announcement."""
        named = {entry.name: entry for entry in entries}
        if named != self._others.get(peer, {}):
            self.version += 1
            if named:
                self._others[peer] = named
            else:
                self._others.pop(peer, None)

    def changed(self) -> None:
        """An own one was opened, closed or forgotten."""
        self.version += 1

    def entries(self) -> list[DurableEntry]:
        """What to tell about our own."""
        return [
            DurableEntry(
                each.name,
                each.pattern,
                each.subscription is not None,
                each.is_forgotten,
                each.pattern in self.plain,
            )
            for each in self.own.values()
        ]

    def of_peer(self, peer: str) -> Mapping[str, DurableEntry]:
        """What another peer told."""
        return self._others.get(peer, {})

    def everyone(self) -> list[tuple[tuple[str, str], DurableEntry]]:
        """All durable subscriptions that other peers told of, the forgotten ones too, by (peer, name)."""
        return [
            ((peer, name), entry) for peer, named in self._others.items() for name, entry in named.items()
        ]

    def wanting(self, topic: str) -> dict[tuple[str, str], DurableEntry]:
        """Durable subscriptions of other peers that match a topic, by (peer, name)."""
        return {
            (peer, name): entry
            for peer, entries in sorted(self._others.items())
            for name, entry in sorted(entries.items())
            if not entry.is_forgotten and matches(entry.pattern, topic)
        }

    def open_for(self, topic: str) -> list[OwnDurable]:
        """Our own open ones that match a topic."""
        return [
            each
            for each in self.own.values()
            if each.subscription is not None and matches(each.pattern, topic)
        ]
