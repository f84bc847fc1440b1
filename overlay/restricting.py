"""Restricted topics: who may publish and subscribe, asked for every action that a neighbour brings.

Called by matching (who wants it), publishing (our own) and delivering (what others put).
"""

from collections.abc import Sequence

from anabranch.overlay.advertisements import MARK, restricted_id
from anabranch.overlay.assured import decode_assured
from anabranch.overlay.codec import Frame, decode_runs, decode_selected
from anabranch.overlay.counters import Counters
from anabranch.overlay.errors import DropReason, PeerError
from anabranch.overlay.headers import Flag
from anabranch.overlay.replywire import Request, decode_items
from anabranch.security.entitlement import PUBLISH, SUBSCRIBE, Rights

_REQUEST, _ASSURED, _SELECTED = int(Flag.REQUEST), int(Flag.ASSURED), int(Flag.SELECTED)
_NO_TOPICS = int(Flag.CONFIRMS | Flag.LETTER | Flag.REPLY)


class Restricting:
    """Asks the table of rights."""

    def __init__(self, me: str, rights: Rights, counters: Counters) -> None:
        self.rights = rights
        self._me = me
        self._counters = counters

    def may_publish(self, peer: str, topic: str) -> bool:
        """Whether what this peer puts there may spread."""
        known = restricted_id(topic)
        return known is None or self.rights.may(peer, PUBLISH, known)

    def may_subscribe(self, peer: str, topic: str) -> bool:
        """Whether this peer's interest in it counts."""
        known = restricted_id(topic)
        return known is None or self.rights.may(peer, SUBSCRIBE, known)

    def admits(self, origin: str, flags: int, body: Sequence[Frame]) -> bool:
        """Whether a bundle from this peer may pass. It is decoded only if it mentions a restricted topic.

        In an open mesh nobody's interest in such a topic counts anyway, so there is nothing to look at.
        """
        if self.rights.is_open or flags & _NO_TOPICS:
            return True
        first = body[0]
        if MARK not in (first if isinstance(first, bytes) else bytes(first)):
            return True
        try:
            topics = _topics(flags, body)
        except PeerError:
            self._counters.drop(DropReason.MALFORMED)
            return False
        for topic in topics:
            if not self.may_publish(origin, topic):
                self._counters.drop(DropReason.DENIED)
                return False
        return True


def _topics(flags: int, body: Sequence[Frame]) -> list[str]:
    if flags & _REQUEST:
        return [item.topic for item in decode_items(body[0]) if isinstance(item, Request)]
    if flags & _ASSURED:
        return [each.run.topic for each in decode_assured(body)]
    runs = decode_selected(body) if flags & _SELECTED else decode_runs(body)
    return [run.topic for run in runs]
