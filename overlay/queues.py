"""What waits for a link: control, then bundles by urgency, bounded by bytes. Headers are made on leaving.

The shell owns one per link and pops as fast as the link takes; so time spent waiting counts as elapsed.
"""

from collections import deque
from collections.abc import Callable, Iterable
from math import inf

from anabranch.overlay.bundles import OutBundle
from anabranch.overlay.codec import Frame, encode_bundle_header
from anabranch.overlay.duplicates import SequenceWindow
from anabranch.overlay.headers import Flag
from anabranch.overlay.retaining import Retained
from anabranch.overlay.sharing import Waiting, joined_by, newest_of
from anabranch.overlay.windows import MOST_BYTES, URGENT_WAIT_S, USUAL_WAIT_S, Window

CONTROL_MAX_BYTES = 4 * 1024 * 1024
"""Control that may wait in one link's queue; a neighbour that reads none of it is as good as gone."""

ONE_FRAME_MAX_BYTES = 8 * 1024
"""A body up to this size follows its header in the same frame: a copy is cheaper than a frame."""

REST_SHARE = 8
"""One byte in so many is for what waits without urgency: urgent bundles slow it down, and don't stop it."""

URGENT_SHARE = 8
"""Publishers with a deadline wait when what is like theirs fills more than this part of a queue."""

RETAINED_MAX_BYTES = MOST_BYTES
"""What a link remembers as under way: about what a socket and the kernel hold for a stalled one."""

URGENT_MEMORY_S = 2.0
"""So long after an urgent bundle the window of bulk is kept small."""

BULK_MEMORY_S = 1.0
"""So long after a bundle without a deadline urgent ones ask for acknowledgements at once, for the window."""

_NOTHING: deque[OutBundle] = deque()
_ACK_SOON = int(Flag.ACK_SOON)
_CLASS_BITS = 4
"""Deadlines that agree in so many leading bits share a class: few classes, each an eighth wide at most."""


class LinkQueue:
    """Waiting messages of one link.

    Control leaves first. Then bundles that can still make their deadline, the one whose deadline ends first
    before the others; then those that cannot, for they are only late; then those without a deadline. While
    any of the latter two wait, the oldest of them gets its share of the bytes. Bundles with the same
    deadline never overtake each other, so each publisher's messages stay in order.

    When it is full, the origin that has most waiting gives way, its newest first, to those that have less.
    Else a bundle with a deadline takes the place of the newest ones without; any other is refused. Those with
    a deadline never fill it all: the same share of the room is not for them. Origins take turns.
    """

    __slots__ = (
        "_bulk",
        "_bulk_bytes",
        "_bulk_until",
        "_bytes_max",
        "_bytes_of",
        "_chosen",
        "_control",
        "_control_bytes",
        "_displaced",
        "_hop_sequence",
        "_in_turn",
        "_now",
        "_owed",
        "_unasked",
        "_unjudged",
        "_urgent",
        "_urgent_max",
        "_urgent_until",
        "_window",
        "arrived",
        "bytes",
        "owed_bytes",
        "retained",
    )

    def __init__(self, bytes_max: int, *, retains: bool = True) -> None:
        self._bytes_max = bytes_max
        self.arrived = SequenceWindow()
        """What came the other way: each bundle that leaves acknowledges it."""
        self.owed_bytes = 0
        """Bytes that arrived and were not acknowledged yet."""
        self.retained: Retained | None = Retained(RETAINED_MAX_BYTES) if retains else None
        """What left and was not acknowledged; None when nobody wants to know."""
        self._window = Window()
        """How much bulk may be under way."""
        self._unasked = 0
        """Bytes that left since an acknowledgement was last asked for."""
        self._unjudged = 0
        """Bytes acknowledged since the window was last told."""
        self._urgent_until = 0.0
        self._bulk_until = 0.0
        self._now = 0.0
        """When `peek` was last called."""
        self._urgent_max = bytes_max - bytes_max // REST_SHARE
        self._control: deque[bytes] = deque()
        self._control_bytes = 0
        self._bulk: Waiting = deque()
        self._bulk_bytes = 0
        self._urgent: dict[int, Waiting] = {}
        """Bundles with a deadline, by its class; no class is empty."""
        self._bytes_of: dict[str, int] = {}
        """Bytes of waiting bundles, by origin."""
        self._owed = 0
        """Bytes that passed those who wait without urgency."""
        self._chosen: Waiting | None = None
        """Whose first bundle `peek` showed."""
        self._in_turn = False
        """Whether it was chosen as the share of those without urgency."""
        self._displaced = 0
        self._hop_sequence = 0
        self.bytes = 0
        """Bytes of waiting bundles."""

    def __len__(self) -> int:
        return len(self._control) + len(self._bulk) + sum(map(len, self._urgent.values()))

    def __bool__(self) -> bool:
        return bool(self._control or self._bulk or self._urgent)

    @property
    def urgent_bytes(self) -> int:
        """Bytes of waiting bundles that have a deadline."""
        return self.bytes - self._bulk_bytes

    @property
    def is_full_of_urgent(self) -> bool:
        """Whether bundles with a deadline alone are more than should wait."""
        return self.bytes - self._bulk_bytes > self._bytes_max // URGENT_SHARE

    def put_control(self, frame: bytes) -> bool:
        """Queue a control message; False when there is no room."""
        if self._control_bytes + len(frame) > CONTROL_MAX_BYTES:
            return False
        self._control.append(frame)
        self._control_bytes += len(frame)
        return True

    def put_bundle(self, bundle: OutBundle) -> bool:
        """Queue a bundle; False when there is no room. An empty queue takes one of any size.

        `take_displaced` tells what had to go for it.
        """
        size = bundle.size
        deadline_us = bundle.deadline_us
        if self.bytes and not self._has_room(bundle):
            return False
        if deadline_us:
            key = _class_of(deadline_us)
            waiting = self._urgent.get(key)
            self._urgent[key] = deque((bundle,)) if waiting is None else joined_by(waiting, bundle)
        else:
            self._bulk = joined_by(self._bulk, bundle)
            self._bulk_bytes += size
        self.bytes += size
        self._bytes_of[bundle.origin] = self._bytes_of.get(bundle.origin, 0) + size
        if bundle.owner is not None:
            bundle.owner.bytes += size
        return True

    def is_crowded_by(self, origin: str) -> bool:
        """Whether an origin has its share of what waits, or more."""
        return self._bytes_of.get(origin, 0) * len(self._bytes_of) >= self.bytes

    def take_displaced(self) -> int:
        """Messages that had to make room since the last look (those of a relay count as one per bundle)."""
        displaced, self._displaced = self._displaced, 0
        return displaced

    @property
    def next_is_bundle(self) -> bool:
        """Whether `peek` will show a bundle."""
        return not self._control

    def peek(self, now: float) -> list[Frame] | None:
        """The frames to send next; `advance` takes them off once the socket took them."""
        if self._control:
            return [self._control[0]]
        self._now = now
        if self._urgent:
            self._urgent_until = now + URGENT_MEMORY_S
            chosen = self._chosen = self._choose(now)
        elif self._bulk and self._may_leave():
            chosen = self._chosen = self._bulk
        else:
            return None
        return self._frames_of(chosen[0], now)

    def express(self, bundle: OutBundle, now: float) -> list[Frame] | None:
        """The frames of a bundle that passes an empty queue; None when others wait. Then `express_sent`."""
        if self._control or self._bulk or self._urgent:
            return None
        if bundle.deadline_us:
            self._urgent_until = now + URGENT_MEMORY_S
        elif not self._may_leave():
            return None
        return self._frames_of(bundle, now)

    def express_sent(self, bundle: OutBundle, now: float) -> None:
        """The socket took what `express` made of this bundle."""
        self._left(bundle, now)

    def acknowledged(self, arrived_to: int, bits: int, now: float) -> list[OutBundle]:
        """The neighbour tells what arrived; the bundles that did not."""
        if self.retained is None:
            return []
        was_full = self.retained.bytes >= self._window.bytes // 2
        lost, size, asked_at = self.retained.acknowledge(arrived_to, bits)
        self._unjudged += size
        if asked_at:
            wait_s = URGENT_WAIT_S if now < self._urgent_until else USUAL_WAIT_S
            self._window.acknowledged(self._unjudged, asked_at, now, was_full, wait_s)
            self._unjudged = 0
        return lost

    def take_bundles(self, wanted: Callable[[OutBundle], bool]) -> tuple[list[OutBundle], list[OutBundle]]:
        """Bundles that shall not leave by this link any more: (sent and not acknowledged, not sent yet)."""
        sent = self.retained.take(wanted) if self.retained is not None else []
        waiting = []
        for queue in (*self._urgent.values(), self._bulk):
            taken = [bundle for bundle in queue if wanted(bundle)]
            if taken:
                kept = [bundle for bundle in queue if not wanted(bundle)]
                queue.clear()
                queue.extend(kept)
                waiting += taken
        self._urgent = {key: queue for key, queue in self._urgent.items() if queue}
        self._chosen = None
        self._took_off(waiting)
        return sent, waiting

    @property
    def bulk_bundle_max_bytes(self) -> int:
        """How large a bundle without a deadline should be, so that urgent ones don't wait for it long."""
        return self._window.bundle_max_bytes

    def _may_leave(self) -> bool:
        """Whether the window has room for bulk; without acknowledgements it always has."""
        retained = self.retained
        return retained is None or retained.bytes < self._window.room_bytes

    def _frames_of(self, bundle: OutBundle, now: float) -> list[Frame]:
        elapsed_us = int((now - bundle.started_at) * 1e6)
        arrived = self.arrived
        if not bundle.deadline_us:
            self._bulk_until = now + BULK_MEMORY_S
        header = encode_bundle_header(
            bundle.flags | _ACK_SOON if self._asks(bundle, now) else bundle.flags,
            self._hop_sequence,
            bundle.sequence,
            elapsed_us if elapsed_us > 0 else 0,
            bundle.deadline_us,
            bundle.tail,
            arrived.next,
            arrived.bits,
        )
        body = bundle.body
        if len(body) == 1 and len(body[0]) <= ONE_FRAME_MAX_BYTES:
            return [b"".join((header, body[0]))]
        return [header, *body]

    def _asks(self, bundle: OutBundle, now: float) -> bool:
        """Whether a bundle that leaves now asks to be acknowledged at once."""
        is_shared = now < self._urgent_until and now < self._bulk_until
        return is_shared or self._unasked + bundle.size >= self._window.ask_bytes

    def _left(self, bundle: OutBundle, now: float) -> None:
        """The socket took a bundle, with the header of `_frames_of`."""
        asked = self._asks(bundle, now)
        self._unasked = 0 if asked else self._unasked + bundle.size
        if self.retained is not None:
            self.retained.add(self._hop_sequence, bundle, now, asked)
        self._hop_sequence += 1
        self.owed_bytes = 0

    def advance(self) -> int:
        """Take off what `peek` showed; its size."""
        if self._control:
            size = len(self._control.popleft())
            self._control_bytes -= size
            return size
        waiting = self._chosen
        if waiting is None:
            waiting = self._choose(0.0)
        self._chosen = None
        bundle = waiting.popleft()
        size = bundle.size
        self._left(bundle, self._now)
        self._took_off((bundle,))
        if bundle.deadline_us:
            if not waiting:
                del self._urgent[_class_of(bundle.deadline_us)]
            if self._in_turn:
                self._owed -= (REST_SHARE - 1) * size
            elif self._bulk or len(self._urgent) > 1:
                self._owed += size
        else:
            if not waiting:
                self._bulk = deque()
            self._owed = self._owed - (REST_SHARE - 1) * size if self._urgent else 0
        if self._owed < 0:
            self._owed = 0
        self._in_turn = False
        return size

    def clear(self) -> tuple[int, int]:
        """Drop everything: how many bundles, how many messages were in them (relayed ones count as one)."""
        left = [*self._bulk, *(bundle for waiting in self._urgent.values() for bundle in waiting)]
        self._took_off(left)
        self._control.clear()
        self._bulk.clear()
        self._urgent.clear()
        self._chosen = None
        self._control_bytes = self._owed = 0
        return len(left), sum(bundle.messages or 1 for bundle in left)

    def _choose(self, now: float) -> Waiting:
        """Whose first bundle leaves next; something must wait. Bulk only while its window has room."""
        urgent = self._urgent
        bulk: Waiting = self._bulk if not self._bulk or self._may_leave() or not urgent else _NOTHING
        self._in_turn = False
        if not urgent:
            return bulk
        first: Waiting | None = None
        late: Waiting | None = None
        first_ends = late_ends = inf
        oldest: Waiting | None = bulk or None
        oldest_at = bulk[0].started_at if bulk else inf
        for waiting in urgent.values():
            head = waiting[0]
            ends = head.started_at + head.deadline_us / 1e6
            if ends >= now:
                if ends < first_ends:
                    first, first_ends = waiting, ends
                continue
            if ends < late_ends:
                late, late_ends = waiting, ends
            if head.started_at < oldest_at:
                oldest, oldest_at = waiting, head.started_at
        if oldest is not None and self._owed >= (REST_SHARE - 1) * oldest[0].size:
            self._in_turn = True
            return oldest
        return first or late or bulk

    def _has_room(self, bundle: OutBundle) -> bool:
        """Whether there is room for a bundle, or who has more waiting gives way."""
        size, is_urgent = bundle.size, bundle.deadline_us > 0
        excess = self.urgent_bytes + size - self._urgent_max if is_urgent else 0
        if excess > 0 and not self._give_way(bundle, excess, list(self._urgent.values())):
            return False
        excess = self.bytes + size - self._bytes_max
        if excess <= 0:
            return True
        if self._give_way(bundle, excess, [self._bulk, *self._urgent.values()]):
            return True
        return is_urgent and excess <= self._bulk_bytes and self._displace(excess, [self._bulk], None)

    def _give_way(self, bundle: OutBundle, excess: int, queues: list[Waiting]) -> bool:
        """Let the origin that has most waiting drop its newest, unless that leaves it less than the other."""
        heaviest = max(self._bytes_of, key=self._bytes_of.__getitem__)
        own = self._bytes_of.get(bundle.origin, 0) + bundle.size
        if heaviest == bundle.origin or self._bytes_of[heaviest] - excess < own:
            return False
        return self._displace(excess, queues, heaviest)

    def _displace(self, excess: int, queues: list[Waiting], origin: str | None) -> bool:
        """Drop the newest bundles, of this origin or of any; whether so many bytes are free then."""
        gone = newest_of(queues, excess, origin, self._bytes_of)
        self._took_off(gone)
        self._displaced += sum(bundle.messages or 1 for bundle in gone)
        self._urgent = {key: queue for key, queue in self._urgent.items() if queue}
        self._chosen = None
        return sum(bundle.size for bundle in gone) >= excess

    def _took_off(self, gone: Iterable[OutBundle]) -> None:
        """These wait no more."""
        for bundle in gone:
            size, origin = bundle.size, bundle.origin
            self.bytes -= size
            if not bundle.deadline_us:
                self._bulk_bytes -= size
            left = self._bytes_of.get(origin, 0) - size
            self._bytes_of[origin] = left
            if left <= 0:
                del self._bytes_of[origin]
            if bundle.owner is not None:
                bundle.owner.bytes -= size


def _class_of(deadline_us: int) -> int:
    """Its leading bits and how many follow: equal deadlines always share a class."""
    shift = deadline_us.bit_length() - _CLASS_BITS
    return deadline_us if shift <= 0 else (shift << _CLASS_BITS) + (deadline_us >> shift)
