"""Which bytes were sent for whom: bundles by origin and receiver, on every hop. Off unless asked for."""

from collections import Counter
from collections.abc import Sequence

from anabranch.overlay.codec import Frame, decode_runs, decode_subtree, decode_tail
from anabranch.overlay.headers import BUNDLE_HEADER, Subtree

_HEADER_BYTES = BUNDLE_HEADER.size

GROUPS_MAX = 1024
"""Bodies whose group is remembered: a bundle passes several hops."""

Carried = Counter[tuple[str, str]]
"""Bytes by (origin, receiver)."""


class Meter:
    """Adds up by next peer and tail, which is all that a hop reads; who is meant is looked up at the end."""

    def __init__(self) -> None:
        self.is_by_group = False
        """Whether to tell bundles apart by the first level of their topic: one with several has that of its
        first message. Costs a look into each body."""
        self._sent: Counter[tuple[str, str, bytes]] = Counter()
        self._bundles: Counter[str] = Counter()
        self._groups: dict[bytes, str] = {}

    def note(self, target: str, frames: Sequence[Frame], size: int) -> None:
        """A bundle leaves for a next peer."""
        head = frames[0]
        body_at = _HEADER_BYTES + int.from_bytes(head[4:8])
        group = ""
        if self.is_by_group:
            group = self._group(bytes(frames[1] if len(frames) > 1 else head[body_at:]))
        self._sent[group, target, bytes(head[_HEADER_BYTES:body_at])] += size
        self._bundles[group] += 1

    def sent_bundles(self, group: str) -> int:
        """How many were sent, on every hop."""
        return self._bundles[group]

    def sent_bytes(self, group: str) -> int:
        """How much that was."""
        return sum(size for (known, _, _), size in self._sent.items() if known == group)

    def carried(self, group: str = "") -> Carried:
        """A bundle on its way to several receivers counts for each of them."""
        found: Carried = Counter()
        for (known, target, raw), size in self._sent.items():
            if known != group:
                continue
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

    def _group(self, body: bytes) -> str:
        found = self._groups.get(body)
        if found is None:
            if len(self._groups) >= GROUPS_MAX:
                del self._groups[next(iter(self._groups))]
            found = self._groups[body] = decode_runs([body])[0].topic.partition("/")[0]
        return found
