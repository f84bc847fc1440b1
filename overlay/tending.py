"""What a peer remembers of requests: where they came from, who is still to come, its own answers.

Soft state: everything in here ends by itself, with the request's own time at the latest. Acts on nothing.
"""

from collections.abc import Iterator

import msgspec

from anabranch.overlay.asking import RequestKey
from anabranch.overlay.coverage import Coverage
from anabranch.overlay.headers import Record
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.merging import Merge
from anabranch.overlay.replywire import Request
from anabranch.overlay.timers import Timers

STATE_BYTES = 512
"""Counted for one request beside what it holds."""
DECLINED = msgspec.Raw(b"")
"""In the place of an answer."""


class Tended:
    """One request as this peer sees it."""

    __slots__ = (
        "audience",
        "awaited",
        "back",
        "check_at",
        "checks",
        "coverage",
        "expected",
        "expires_at",
        "flush_at",
        "held_bytes",
        "index",
        "is_finished",
        "is_passing",
        "is_site",
        "is_straight",
        "key",
        "merge",
        "own",
        "parent",
        "records",
        "request",
        "sent_at",
        "subscriptions",
        "unanswered",
        "unreached_since",
    )

    def __init__(self, request: Request, merge: Merge | None, started_at: float, now: float) -> None:
        self.key: RequestKey = request.key
        self.request = request
        self.merge = merge
        """None unless replies are merged here."""
        self.audience = request.audience
        self.index = self.audience.places
        self.parent = ""
        """Whom it came from; empty when that is this peer's own application."""
        self.is_straight = False
        """Whether reports go straight to the publisher: the way back broke, or the publisher wished so."""
        self.back: list[str] = []
        """The rest of the way beyond the parent, when peers on it keep no state."""
        self.expected = 0
        """Sites at and behind this peer."""
        self.awaited: dict[str, int] = {}
        """By next peer, the sites that are still to come from there; under "" ourselves."""
        self.coverage = Coverage()
        """Merged parts that wait for the others."""
        self.records: dict[str, Record] = {}
        """What goes along with them, by origin."""
        self.is_passing = False
        """Whether what comes is passed on at once: merging was given up."""
        self.is_finished = False
        """Whether everything was reported."""
        self.is_site = False
        self.subscriptions: list[SubscriptionId] = []
        self.own: list[msgspec.Raw | None] = []
        """Our application's answers, by subscriber."""
        self.unanswered = 0
        """How many of those are still to come."""
        self.held_bytes = STATE_BYTES
        within_s = request.within_us / 1e6
        self.expires_at = started_at + within_s
        age_s = max(0.0, now - started_at)
        self.flush_at = max(now, self.expires_at - 1.5 * age_s - min(0.1, 0.1 * within_s))
        """When what is merged by then must go, to be at the publisher in time."""
        self.check_at = float("inf")
        self.checks = 0
        self.sent_at = now
        """When something was last sent to the parent."""
        self.unreached_since: float | None = None

    @property
    def outstanding(self) -> int:
        """All sites that are still to come."""
        left = 0
        for mask in self.awaited.values():
            left |= mask
        return left

    @property
    def is_holding(self) -> bool:
        """Whether merged parts wait here for others."""
        return self.merge is not None and not (self.is_finished or self.is_passing)

    @property
    def own_bit(self) -> int:
        """This peer's site; 0 when it is none."""
        return self.awaited.get("", 0)

    def settle(self, mask: int) -> None:
        """These sites are not to be waited for any more."""
        for peer, waiting in self.awaited.items():
            if waiting & mask:
                self.awaited[peer] = waiting & ~mask

    @property
    def due(self) -> float:
        """When it is to be looked at."""
        if self.is_finished or not self.coverage.parts or self.is_passing:
            return min(self.expires_at, self.check_at)
        return min(self.expires_at, self.check_at, self.flush_at)


class Tending:
    """All requests that this peer keeps, within its limits, and the names of those it gave up."""

    def __init__(self, harvests_max: int, bytes_max: int) -> None:
        self._harvests_max = harvests_max
        self._bytes_max = bytes_max
        self._tended: dict[RequestKey, Tended] = {}
        self._by_origin: dict[str, dict[RequestKey, Tended]] = {}
        self._over: dict[RequestKey, None] = {}
        self._open_from: dict[str, tuple[int, int]] = {}
        self.times: Timers[RequestKey] = Timers()
        """When `take_due` has something."""
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._tended)

    def __iter__(self) -> Iterator[Tended]:
        return iter(list(self._tended.values()))

    def get(self, key: RequestKey) -> Tended | None:
        """What is known of a request."""
        return self._tended.get(key)

    def is_over(self, key: RequestKey) -> bool:
        """Whether a request was closed, or its time is over."""
        epoch, number = self._open_from.get(key.origin, (0, 0))
        return key in self._over or (key.epoch, key.number) < (epoch, number)

    def has_room(self) -> bool:
        """Whether one more request can be kept."""
        return len(self._tended) < self._harvests_max and self.bytes + STATE_BYTES <= self._bytes_max

    def add(self, state: Tended) -> None:
        """Keep a request."""
        self._tended[state.key] = state
        self._by_origin.setdefault(state.key.origin, {})[state.key] = state
        self.bytes += state.held_bytes
        self.rearm(state)

    def hold(self, state: Tended, size: int) -> bool:
        """Keep so many bytes more for it; False when there is no room."""
        if self.bytes + size > self._bytes_max:
            return False
        self.bytes += size
        state.held_bytes += size
        return True

    def release(self, state: Tended) -> None:
        """Merged parts that it held have left."""
        kept = STATE_BYTES + sum(len(answer) for answer in state.own if answer is not None)
        self.bytes -= state.held_bytes - min(kept, state.held_bytes)
        state.held_bytes = min(kept, state.held_bytes)
        state.coverage.parts = []

    def free(self, state: Tended) -> None:
        """It is over."""
        del self._tended[state.key]
        of_origin = self._by_origin[state.key.origin]
        del of_origin[state.key]
        if not of_origin:
            del self._by_origin[state.key.origin]
        self.times.cancel(state.key)
        self.bytes -= state.held_bytes
        self.remember_over(state.key)

    def remember_over(self, key: RequestKey) -> None:
        """So that what comes late is known to be late."""
        self._over[key] = None
        if len(self._over) > self._harvests_max:
            del self._over[next(iter(self._over))]

    def advance(self, origin: str, epoch: int, open_from: int) -> None:
        """The publisher tells that its earlier requests are over."""
        known = self._open_from.pop(origin, (0, 0))
        self._open_from[origin] = newest = max(known, (epoch, open_from))
        if len(self._open_from) > self._harvests_max:
            del self._open_from[next(iter(self._open_from))]
        if newest != known:
            for state in list(self._by_origin.get(origin, {}).values()):
                if (state.key.epoch, state.key.number) < newest:
                    self.free(state)

    def rearm(self, state: Tended) -> None:
        """Its times may have changed; one that is later now is found out when it comes."""
        self.times.set_earliest(state.key, state.due)

    def take_due(self, now: float) -> list[Tended]:
        """Requests to look at now."""
        return [self._tended[key] for _, key in self.times.pop_due(now) if key in self._tended]

    def check_invariants(self) -> None:
        """What must hold after every input."""
        assert self.bytes == sum(state.held_bytes for state in self._tended.values())
        assert len(self._tended) <= self._harvests_max
        for state in self._tended.values():
            if state.coverage.parts:
                state.coverage.check_invariants()
