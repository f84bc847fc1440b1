"""Restricted topics: who may publish and subscribe, asked for every action that a neighbour brings.

Called by matching (who wants it), publishing (our own) and delivering (what others put).
"""

from collections.abc import Sequence

import msgspec

from anabranch.overlay.advertisements import restricted_id
from anabranch.overlay.bundles import parted
from anabranch.overlay.codec import Frame
from anabranch.overlay.counters import Counters
from anabranch.overlay.errors import DropReason, PeerError, UsageError
from anabranch.overlay.headers import Flag
from anabranch.overlay.replywire import Request, decode_items
from anabranch.security.entitlement import PUBLISH, SUBSCRIBE, Rights
from anabranch.security.signing import Verifier

_REQUEST, _ASSURED = int(Flag.REQUEST), int(Flag.ASSURED)
_NO_TOPICS = int(Flag.CONFIRMS | Flag.LETTER | Flag.REPLY)


class Restricting:
    """Asks the table of rights."""

    def __init__(self, me: str, rights: Rights, counters: Counters, verifier: Verifier) -> None:
        self.rights = rights
        self.is_sealed = False
        """Whether bodies carry the seal of their origin."""
        self._me = me
        self._counters = counters
        self._verifier = verifier

    def may_publish(self, peer: str, topic: str) -> bool:
        """Whether what this peer puts there may spread."""
        known = restricted_id(topic)
        return known is None or self.rights.may(peer, PUBLISH, known)

    def check_publish(self, peer: str, topic: str) -> None:
        """UsageError unless it may."""
        if not self.may_publish(peer, topic):
            raise UsageError(
                f"topic {topic!r}: restricted, and {peer} has no right to publish to it; ask its creator for "
                "a grant and give it to `use_grant`"
            )

    def may_subscribe(self, peer: str, topic: str) -> bool:
        """Whether this peer's interest in it counts."""
        known = restricted_id(topic)
        return known is None or self.rights.may(peer, SUBSCRIBE, known)

    def admits(self, origin: str, flags: int, body: Sequence[Frame]) -> bool:
        """Whether a bundle from this peer may pass, by the topics in it: payloads are stepped over.

        In an open mesh nobody's interest in such a topic counts anyway, so there is nothing to look at.
        """
        if self.rights.is_open or flags & _NO_TOPICS:
            return True
        content = parted(body)[1] if self.is_sealed else body
        for topic in _topics(flags, content[0]):
            if not self.may_publish(origin, topic):
                self.denied(origin, topic, 1)
                return False
        return True

    def denied(self, origin: str, topic: str, count: int) -> None:
        """A peer put something that it has no right to put: for the counters and the log."""
        self._counters.drop(DropReason.DENIED, count)
        self._verifier.refuse(origin, f"publishes to {topic!r}, without a right to it that is known here")


class _Head(msgspec.Struct, array_like=True):
    """The beginning of a `Run`, or of what is built like one."""

    topic: str


class _AssuredHead(msgspec.Struct, array_like=True):
    stream: msgspec.Raw
    run: _Head


def _topics(flags: int, body: Frame) -> list[str]:
    """What cannot be read is left to those who it is for: they check again, each run."""
    try:
        if flags & _REQUEST:
            return [item.topic for item in decode_items(body) if isinstance(item, Request)]
        if flags & _ASSURED:
            return [each.run.topic for each in _assured_decoder.decode(body)]
        return [each.topic for each in _decoder.decode(body)]
    except (PeerError, msgspec.MsgspecError, ValueError, RecursionError):
        return []


_decoder = msgspec.msgpack.Decoder(list[_Head])
_assured_decoder = msgspec.msgpack.Decoder(list[_AssuredHead])
