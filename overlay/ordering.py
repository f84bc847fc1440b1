"""The sequence of every publisher heard of: what may be delivered now, what waits, what comes too late.

A link keeps order, so a gap within one generation of a route is a loss and nothing waits for it. When the
generation changes, messages on the old path may still be under way; with copies on several paths what is
missing on one may come on another; and what a link lost is sent again. What follows such a gap is held until
it is filled or a bounded time has passed. Nothing is ever delivered before an earlier message of its
publisher that is delivered too, and nothing twice.
"""

import msgspec

from anabranch.overlay.errors import DropReason

GAPS_MAX = 64
"""Remembered gaps of a stream, to tell a late message from a repeated one."""

StreamKey = tuple[str, int, int]
"""(origin, epoch, publisher)."""


class Arrival(msgspec.Struct):
    """A run that arrived; `item` is what the caller wants back when it may be delivered."""

    first: int
    count: int
    generation: int
    item: object
    may_fill: bool = False
    """Whether what is missing before it may still come: on another path, or sent again over a link."""
    patience_s: float = float("inf")
    """How long it may wait for them; those of an older route get the full time, since
    a message that comes late is better than one that never does."""


class Verdict(msgspec.Struct):
    """What to do now."""

    ready: list[tuple[Arrival, int]] = []
    """Deliver these in order; the number says how many messages at the front to leave out."""
    refused: list[tuple[DropReason, int]] = []
    """Messages that must not be delivered, and why."""
    lost: int = 0
    """Messages found missing."""


class Stream:
    """One publisher, as heard here."""

    __slots__ = (
        "gaps",
        "generation",
        "held",
        "hold_until",
        "is_known",
        "next_sequence",
        "repeated",
        "was_heard",
    )

    def __init__(self, first: int, generation: int) -> None:
        self.next_sequence = first
        self.generation = generation
        self.held: list[Arrival] = []
        self.hold_until: float | None = None
        self.gaps: list[tuple[int, int]] = []
        self.repeated = 0
        """Messages dropped as repeated; whoever writes that down sets it to 0."""
        self.is_known = True
        """False once the table forgot it."""
        self.was_heard = False
        """Heard by the short way, which leaves its place in the table as it is."""

    def offer(
        self, arrival: Arrival, now: float, hold_s: float, held_max: int, repair_s: float = 0.0
    ) -> Verdict:
        """Take a run that just arrived; after a change of route it may wait for `repair_s`."""
        end = arrival.first + arrival.count
        expected = self.next_sequence
        if arrival.first == expected and not self.held:
            self.next_sequence = end
            self.generation = arrival.generation
            return Verdict([(arrival, 0)])
        verdict = Verdict()
        if end <= expected:
            self._refuse(arrival, end, verdict)
            return verdict
        fills = arrival.first <= expected
        is_new_route = arrival.generation != self.generation
        if not fills and (is_new_route or self.held or arrival.may_fill):
            waits_for_repair = any(held.generation != self.generation for held in self.held)
            self.held.append(arrival)
            self.held.sort(key=lambda waiting: waiting.first)
            hold_until = now + (max(hold_s, repair_s) if is_new_route else min(hold_s, arrival.patience_s))
            if self.hold_until is None or (hold_until < self.hold_until and not waits_for_repair):
                self.hold_until = hold_until
            if len(self.held) > held_max:
                self._release_all(verdict)
            return verdict
        self._take(arrival, verdict)
        self._release_ready(verdict)
        return verdict

    def expire(self, now: float) -> Verdict:
        """Stop waiting if the time is over."""
        verdict = Verdict()
        if self.hold_until is not None and self.hold_until <= now:
            self._release_all(verdict)
        return verdict

    def _take(self, arrival: Arrival, verdict: Verdict) -> None:
        end = arrival.first + arrival.count
        if end <= self.next_sequence:
            self._refuse(arrival, end, verdict)
            return
        skip = 0
        if arrival.first > self.next_sequence:
            verdict.lost += arrival.first - self.next_sequence
            self.gaps.append((self.next_sequence, arrival.first))
            del self.gaps[:-GAPS_MAX]
        elif arrival.first < self.next_sequence:
            skip = self.next_sequence - arrival.first
            self._refuse(arrival, self.next_sequence, verdict)
        verdict.ready.append((arrival, skip))
        self.next_sequence = end
        self.generation = arrival.generation

    def _release_ready(self, verdict: Verdict) -> None:
        while self.held and self.held[0].first <= self.next_sequence:
            self._take(self.held.pop(0), verdict)
        if not self.held:
            self.hold_until = None

    def _release_all(self, verdict: Verdict) -> None:
        for arrival in self.held:
            self._take(arrival, verdict)
        self.held = []
        self.hold_until = None

    def _refuse(self, arrival: Arrival, until: int, verdict: Verdict) -> None:
        late = sum(max(0, min(until, stop) - max(arrival.first, start)) for start, stop in self.gaps)
        repeated = until - arrival.first - late
        if late:
            verdict.refused.append((DropReason.OUT_OF_ORDER, late))
        if repeated:
            self.repeated += repeated
            verdict.refused.append((DropReason.DUPLICATE, repeated))


class Streams:
    """All streams heard at this peer; the least recently heard goes when the table is full."""

    def __init__(self, streams_max: int, held_max: int, hold_s: float, repair_s: float = 0.0) -> None:
        self._streams: dict[StreamKey, Stream] = {}
        self._holding: dict[StreamKey, float] = {}
        self._streams_max = streams_max
        self._held_max = held_max
        self._hold_s = hold_s
        self._repair_s = repair_s
        self.forgotten: dict[str, None] | None = None
        """Origins of streams that were forgotten, if anybody wants to know: who takes note clears it."""

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def is_holding(self) -> bool:
        """Whether anything waits for earlier messages."""
        return bool(self._holding)

    def advance(self, key: StreamKey, first: int, count: int, generation: int) -> bool:
        """Take a run if it is just the next one of its stream, as nearly all are; otherwise `offer` it."""
        stream = self._streams.pop(key, None)
        if stream is None:
            return False
        self._streams[key] = stream  # moves it to the end: most recently heard
        if stream.next_sequence != first or stream.held:
            return False
        stream.next_sequence = first + count
        stream.generation = generation
        return True

    def offer(self, key: StreamKey, arrival: Arrival, now: float, hold_s: float = 0.0) -> Verdict:
        """Take a run of this stream; it may wait longer than usual, for `hold_s`."""
        stream = self._streams.pop(key, None)
        if stream is None:
            stream = Stream(arrival.first, arrival.generation)
        self._streams[key] = stream
        verdict = stream.offer(arrival, now, max(hold_s, self._hold_s), self._held_max, self._repair_s)
        if len(self._streams) > self._streams_max:
            forgotten = self._forget_oldest()
            if forgotten:
                verdict.refused.append((DropReason.TABLE_FULL, forgotten))
        self._note_hold(key, stream)
        return verdict

    def take_repeated(self, key: StreamKey) -> int:
        """Messages dropped as repeated since the last call; the stream is one that is known."""
        stream = self._streams[key]
        repeated, stream.repeated = stream.repeated, 0
        return repeated

    def get(self, key: StreamKey) -> Stream | None:
        """The stream of this key."""
        return self._streams.get(key)

    def _forget_oldest(self) -> int:
        """Forget the stream not heard for longest; how many messages it held."""
        while True:
            key = next(iter(self._streams))
            stream = self._streams.pop(key)
            if not stream.was_heard:
                break
            stream.was_heard = False
            self._streams[key] = stream
        self._holding.pop(key, None)
        stream.is_known = False
        if self.forgotten is not None:
            self.forgotten[key[0]] = None
        return sum(held.count for held in stream.held)

    def next_timeout(self) -> float | None:
        """When `expire` has something to do."""
        return min(self._holding.values()) if self._holding else None

    def expire(self, now: float) -> list[Verdict]:
        """Stop waiting where the time is over."""
        verdicts = []
        for key, until in list(self._holding.items()):
            if until <= now:
                stream = self._streams[key]
                verdicts.append(stream.expire(now))
                self._note_hold(key, stream)
        return verdicts

    def _note_hold(self, key: StreamKey, stream: Stream) -> None:
        if stream.hold_until is not None:
            self._holding[key] = stream.hold_until
        elif self._holding:
            self._holding.pop(key, None)
