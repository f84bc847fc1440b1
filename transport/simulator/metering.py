"""Which bytes were sent for whom: bundles by origin and receiver, on every hop. Off unless asked for."""

from collections import Counter

from anabranch.overlay.codec import Frame, decode_subtree, decode_tail
from anabranch.overlay.headers import BUNDLE_HEADER, Subtree

_HEADER_BYTES = BUNDLE_HEADER.size

Carried = Counter[tuple[str, str]]
"""Bytes by (origin, receiver)."""


class Meter:
    """Adds up by next peer and tail, which is all that a hop reads; who is meant is looked up at the end."""

    def __init__(self) -> None:
        self._sent: Counter[tuple[str, bytes]] = Counter()

    def note(self, target: str, head: Frame, size: int) -> None:
        """A bundle leaves for a next peer."""
        tail_bytes = int.from_bytes(head[4:8])
        self._sent[target, bytes(head[_HEADER_BYTES : _HEADER_BYTES + tail_bytes])] += size

    def carried(self) -> Carried:
        """A bundle on its way to several receivers counts for each of them."""
        found: Carried = Counter()
        for (target, raw), size in self._sent.items():
            tail = decode_tail(raw)
            receivers = set(tail.destinations)
            pending = [(target, Subtree(tail.deliver, tail.branches))]
            while pending:
                peer, below = pending.pop()
                if below.deliver:
                    receivers.add(peer)
                pending += [(child, decode_subtree(branch)) for child, branch in below.branches]
            for receiver in receivers:
                found[tail.origin, receiver] += size
        return found
