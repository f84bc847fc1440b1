"""The numbers of one run: what each subscription got of each topic, how late, and how long faults hurt.

Reads the ledger, which knows the true times of publication and delivery; no wall clock is involved.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf, isnan, nan

import msgspec

from anabranch.overlay.patterns import matches
from anabranch.tools.scenarios.schema import Pair, Scenario
from anabranch.tools.scenarios.timeline import Happening
from anabranch.tools.scenarios.truth import Truth, reroute_s
from anabranch.transport.simulator import Carried, Published, SimSubscription

BINS_PER_S = 100_000
"""Latencies are counted in steps of 10 µs, so that runs can be added up."""
NOTICE_S = 0.5
"""A flow suffers from a fault if a message put within this time after it is lost or late."""
ROUNDING_S = 1e-9
"""Sums of delays that meet a deadline exactly may be this much above it."""
SAMPLES_MAX = 400
"""Per pair and run, for pictures."""
STEADY_MESSAGES = 5
"""A flow delivers again with the first of this many in a row that arrive in time."""


class PairCounts(msgspec.Struct):
    """One subscription and one topic."""

    published: int = 0
    """Put while the subscription existed."""
    delivered: int = 0
    late: int = 0
    """Delivered after the flow's deadline."""
    switches: int = 0
    """How often the path of a message differed from that of the message before."""
    latencies: dict[int, int] = {}
    """Messages by latency, in bins of 10 µs."""
    possible: int = 0
    """Put while a path of links that were up existed."""
    possible_lost: int = 0
    timely: int = 0
    """Delivered, and a path within the deadline existed when they were put."""
    timely_late: int = 0
    data_bytes: int = 0
    """Of bundles on their way to this pair, on every hop; those for several receivers count for each."""
    oracle_s: float = 0.0
    """Sum over `compared` messages: how long the quickest path would have taken that there was at their put,
    known only to somebody who sees the whole network and its future."""
    taken_s: float = 0.0
    """The same sum for how long they took."""
    compared: int = 0
    direct_s: float = 0.0
    """Sum over `direct` messages: how long the direct link would have taken when it was up."""
    direct: int = 0

    def add(self, other: "PairCounts") -> None:
        """Add another run, or another pair."""
        self.published += other.published
        self.delivered += other.delivered
        self.late += other.late
        self.switches += other.switches
        self.possible += other.possible
        self.possible_lost += other.possible_lost
        self.timely += other.timely
        self.timely_late += other.timely_late
        self.data_bytes += other.data_bytes
        self.oracle_s += other.oracle_s
        self.taken_s += other.taken_s
        self.compared += other.compared
        self.direct_s += other.direct_s
        self.direct += other.direct
        total = Counter(self.latencies)
        total.update(other.latencies)
        self.latencies = dict(total)


class Suffered(msgspec.Struct, frozen=True):
    """A fault, and the pairs whose messages were lost or late because of it."""

    at_s: float
    do: str
    what: str
    again_s: dict[str, float | None]
    """By pair: time until it delivered again; None when it did not before the end."""
    rerouted_s: list[float | None]
    """Those of pairs that another path could have served: neither end was itself at fault."""


class Measured(msgspec.Struct, frozen=True):
    """One run in numbers."""

    pairs: dict[str, PairCounts]
    happenings: list[Suffered]
    control_bytes: int
    data_bytes: int
    measured_s: float
    """Virtual time over which the bytes were counted."""
    bundles: int
    """Sent on every hop; each holds one message."""
    rerouted_s: list[float | None]
    """By dark link and flow on it: time until a message came another way; None when none did."""
    samples: dict[str, list[tuple[float, float]]]
    """By pair: when some of its messages were put, and their latencies."""


def measure(
    scenario: Scenario,
    ledger: Iterable[Published],
    subscriptions: Iterable[tuple[str, SimSubscription]],
    happenings: Sequence[Happening],
    truth: Truth,
    *,
    control_bytes: int,
    data_bytes: int,
    bundles: int,
    carried: Carried | None = None,
    prefix: str = "",
) -> Measured:
    """Sum up a finished run. `prefix` stands before the topics that were used, and not in the results."""
    since = scenario.run.warmup_s
    pairs: dict[str, PairCounts] = {}
    streams: list[tuple[str, Stream]] = []
    samples: dict[str, list[tuple[float, float]]] = {}
    published = list(ledger)
    for name, subscription in subscriptions:
        for topic in sorted({flow.topic for flow in scenario.flows}):
            if not matches(subscription.pattern, prefix + topic):
                continue
            key = f"{name}.{topic}"
            for each in published:
                if each.topic == prefix + topic:
                    stream = Stream(subscription, each)
                    streams.append((key, stream))
                    pairs.setdefault(key, PairCounts()).add(stream.counts(since, truth))
                    samples.setdefault(key, []).extend(stream.samples(since))
            pairs.setdefault(key, PairCounts())
    if carried is not None:
        _share_bytes(pairs, streams, carried)
    suffered = [_suffered(happening, streams) for happening in happenings]
    rerouted = [
        took
        for outage in truth.outages()
        if outage[0] >= since
        for _, stream in streams
        for took in stream.rerouted_s(*outage)
    ]
    return Measured(
        dict(sorted(pairs.items())),
        suffered,
        control_bytes,
        data_bytes,
        scenario.end_s - since,
        bundles,
        rerouted,
        samples,
    )


def _share_bytes(
    pairs: dict[str, PairCounts], streams: Sequence[tuple[str, "Stream"]], carried: Carried
) -> None:
    """What went from a peer to another is shared by the pairs between them, by their messages."""
    between: dict[tuple[str, str], Counter[str]] = {}
    for key, stream in streams:
        counted = between.setdefault((stream.origin, stream.subscriber), Counter())
        counted[key] += stream.published_count
    for ends, counted in between.items():
        total = counted.total()
        for key, count in counted.items():
            pairs[key].data_bytes += round(carried[ends] * count / total) if total else 0


class Stream:
    """One publisher as one subscription got it: for each message, when it was put and when it arrived."""

    def __init__(self, subscription: SimSubscription, published: Published) -> None:
        self.subscriber = subscription.peer
        self.origin = published.origin
        self._subscription = subscription
        self._put = published.times
        self._arrived = array("d", [nan]) * len(published.times)
        self._deadline_s = published.deadline_s or float("inf")
        self._received = received = subscription.received.get(published.key)
        if received is not None:
            for sequence, at in zip(received.sequences, received.times, strict=True):
                index = sequence - published.first
                if isnan(self._arrived[index]):
                    self._arrived[index] = at

    @property
    def published_count(self) -> int:
        """Messages put, whoever wanted them."""
        return len(self._put)

    def counts(self, since: float, truth: Truth) -> PairCounts:
        """Totals of the messages put from a time on."""
        counts = PairCounts(switches=self._received.switches if self._received else 0)
        bins: Counter[int] = Counter()
        limit = self._deadline_s + ROUNDING_S
        for begin, end in self._subscription.active:
            first, last = bisect_left(self._put, max(begin, since)), bisect_left(self._put, end)
            best, direct, valid = None, None, -inf
            for index in range(first, last):
                put = self._put[index]
                if put > valid:
                    best, valid = truth.best_s(self.origin, self.subscriber, put)
                    direct = truth.direct_s(self.origin, self.subscriber, put)
                latency = self._arrived[index] - put
                arrived = latency == latency  # not nan
                if arrived:
                    bins[round(latency * BINS_PER_S)] += 1
                    counts.late += latency > limit
                if best is not None:
                    counts.possible += 1
                    if arrived:
                        counts.compared += 1
                        counts.oracle_s += best
                        counts.taken_s += latency
                    if direct is not None:
                        counts.direct += 1
                        counts.direct_s += direct
                    counts.possible_lost += not arrived
                    if arrived and best <= limit:
                        counts.timely += 1
                        counts.timely_late += latency > limit
            counts.published += max(0, last - first)
        counts.delivered = bins.total()
        counts.latencies = dict(bins)
        return counts

    def samples(self, since: float) -> list[tuple[float, float]]:
        """(time of put, latency) of evenly chosen messages that arrived."""
        step = max(1, len(self._put) // SAMPLES_MAX)
        chosen = range(bisect_left(self._put, since), len(self._put), step)
        return [
            (self._put[index], self._arrived[index] - self._put[index])
            for index in chosen
            if not isnan(self._arrived[index])
        ]

    def rerouted_s(self, at: float, end: float, ways: frozenset[Pair]) -> list[float | None]:
        """One time, or None if the flow did not come another way; empty if the outage was not on its path."""
        if self._received is None:
            return []
        hit, took = reroute_s(self._received.paths, self._received.path_at(at), at, end, ways)
        return [took] if hit else []

    def suffers(self, happening: Happening) -> bool:
        """Whether a fault hit the path in use, and a message put soon after it was lost or late."""
        at = happening.at_s
        if self._received is None or not happening.hits(self._received.path_at(at)):
            return False
        first, last = bisect_left(self._put, at), bisect_left(self._put, at + NOTICE_S)
        return any(not self._is_good(index) for index in range(first, last))

    def again_s(self, at: float) -> float | None:
        """Time from a fault to the first of several messages in a row that arrived as they should."""
        begin = bisect_left(self._put, at)
        bad = next((index for index in range(begin, len(self._put)) if not self._is_good(index)), begin)
        row = 0
        for index in range(bad, len(self._put)):
            row = row + 1 if self._is_good(index) else 0
            if row == STEADY_MESSAGES or (row and index == len(self._put) - 1):
                return self._arrived[index - row + 1] - at
        return None

    def _is_good(self, index: int) -> bool:
        latency = self._arrived[index] - self._put[index]
        return latency <= self._deadline_s  # False for nan, which stands for lost


def _suffered(happening: Happening, streams: list[tuple[str, Stream]]) -> Suffered:
    again: dict[str, float | None] = {}
    rerouted: list[float | None] = []
    if happening.is_fault:
        for key, stream in streams:
            if not stream.suffers(happening):
                continue
            took = stream.again_s(happening.at_s)
            known = again.get(key, 0.0)
            again[key] = None if took is None or known is None else max(took, known)
            if not happening.groups and not {stream.subscriber, stream.origin} & set(happening.peers):
                rerouted.append(took)
    return Suffered(happening.at_s, happening.do, str(happening), again, rerouted)
