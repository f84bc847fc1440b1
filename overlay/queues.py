"""What waits for a link: control first, then bundles, bounded by bytes. Headers are made on leaving.

The shell owns one per link and pops as fast as the socket takes; so time spent waiting counts as elapsed.
"""

from collections import deque

import msgspec

from anabranch.overlay.codec import Frame, encode_bundle_header

CONTROL_MAX_BYTES = 4 * 1024 * 1024
"""Control that may wait in one link's queue; a neighbour that reads none of it is as good as gone."""


ONE_FRAME_MAX_BYTES = 8 * 1024
"""A body up to this size follows its header in the same frame: a copy is cheaper than a frame."""


class OutBundle(msgspec.Struct):
    """A bundle on its way out."""

    sequence: int
    """Per origin."""
    started_at: float
    """When, on our clock, its elapsed time was zero."""
    deadline_us: int
    tail: bytes
    body: list[Frame]
    """The body and the large payloads, passed on untouched."""
    size: int
    messages: int
    """0 when unknown: a relay does not look."""
    flags: int = 0


class LinkQueue:
    """Waiting messages of one link."""

    __slots__ = ("_bundles", "_bytes_max", "_control", "_control_bytes", "_hop_sequence", "bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._control: deque[bytes] = deque()
        self._control_bytes = 0
        self._bundles: deque[OutBundle] = deque()
        self._hop_sequence = 0
        self.bytes = 0
        """Bytes of waiting bundles."""

    def __len__(self) -> int:
        return len(self._control) + len(self._bundles)

    def put_control(self, frame: bytes) -> bool:
        """Queue a control message; False when there is no room."""
        if self._control_bytes + len(frame) > CONTROL_MAX_BYTES:
            return False
        self._control.append(frame)
        self._control_bytes += len(frame)
        return True

    def put_bundle(self, bundle: OutBundle) -> bool:
        """Queue a bundle; False when there is no room. An empty queue takes one of any size."""
        if self.bytes and self.bytes + bundle.size > self._bytes_max:
            return False
        self._bundles.append(bundle)
        self.bytes += bundle.size
        return True

    @property
    def next_is_bundle(self) -> bool:
        """Whether `peek` will show a bundle."""
        return not self._control

    def peek(self, now: float) -> list[Frame] | None:
        """The frames to send next; `advance` takes them off once the socket took them."""
        if self._control:
            return [self._control[0]]
        if not self._bundles:
            return None
        return self._frames_of(self._bundles[0], now)

    def express(self, bundle: OutBundle, now: float) -> list[Frame] | None:
        """The frames of a bundle that passes an empty queue; None when others wait. Then `express_sent`."""
        return None if self._control or self._bundles else self._frames_of(bundle, now)

    def express_sent(self) -> None:
        """The socket took what `express` made."""
        self._hop_sequence += 1

    def _frames_of(self, bundle: OutBundle, now: float) -> list[Frame]:
        elapsed_us = int((now - bundle.started_at) * 1e6)
        header = encode_bundle_header(
            bundle.flags,
            self._hop_sequence,
            bundle.sequence,
            elapsed_us if elapsed_us > 0 else 0,
            bundle.deadline_us,
            bundle.tail,
        )
        body = bundle.body
        if len(body) == 1 and len(body[0]) <= ONE_FRAME_MAX_BYTES:
            return [b"".join((header, body[0]))]
        return [header, *body]

    def advance(self) -> int:
        """Take off what `peek` showed; its size."""
        if self._control:
            size = len(self._control.popleft())
            self._control_bytes -= size
            return size
        bundle = self._bundles.popleft()
        self._hop_sequence += 1
        self.bytes -= bundle.size
        return bundle.size

    def clear(self) -> tuple[int, int]:
        """Drop everything: how many bundles, how many messages were in them (relayed ones count as one)."""
        bundles = len(self._bundles)
        messages = sum(bundle.messages or 1 for bundle in self._bundles)
        self._control.clear()
        self._bundles.clear()
        self._control_bytes = self.bytes = 0
        return bundles, messages
