"""Everything published and delivered in a simulation, and the promises that must hold between the two.

Promises: nothing is delivered twice to a subscription, nothing before an earlier message of its publisher,
nothing that was not published, nothing to a subscription that did not ask for it.
"""

import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import NamedTuple

import msgspec

from anabranch.overlay.actions import AssuredDelivery, DeliveredRun, SelectedDelivery
from anabranch.overlay.attributes import NO_ATTRIBUTES, Row
from anabranch.overlay.expressions import parse
from anabranch.overlay.headers import PASSES_MAX
from anabranch.overlay.patterns import matches

StreamKey = tuple[str, int, int]
"""(origin, publisher, incarnation of the origin)."""


class BrokenPromiseError(AssertionError):
    """The mesh did what it promises never to do."""


class Delivery(msgspec.Struct, frozen=True):
    """One message, as an application got it."""

    topic: str
    origin: str
    publisher: int
    sequence: int
    payload: object
    age_s: float
    """What the mesh estimated; of the oldest message that arrived together with this one."""
    path: tuple[str, ...]
    time: float
    """Virtual time of the delivery."""
    published_at: float
    """Virtual time of the publication: the truth that `age_s` estimates."""
    deadline_s: float


class Published:
    """One publisher of one incarnation of a peer: when each of its messages was put."""

    __slots__ = (
        "deadline_s",
        "first",
        "incarnation",
        "is_selected",
        "key",
        "origin",
        "prints",
        "publisher",
        "times",
        "topic",
    )

    def __init__(
        self, origin: str, publisher: int, incarnation: int, topic: str, first: int, deadline_s: float
    ) -> None:
        self.origin = origin
        self.publisher = publisher
        self.incarnation = incarnation
        self.topic = topic
        self.first = first
        """Sequence of its first message."""
        self.deadline_s = deadline_s
        """0: none."""
        self.key: StreamKey = (origin, publisher, incarnation)
        """The stream this publisher makes."""
        self.is_selected = False
        """Whether filters or selections of sites decided whom its messages were for."""
        self.times: array[float] = array("d")
        self.prints: array[int] = array("L")
        """Checksums of the payloads, when the ledger checks them."""


class Received:
    """What one subscription got of one publisher."""

    __slots__ = ("path", "paths", "sequences", "times")

    def __init__(self) -> None:
        self.sequences: array[int] = array("Q")
        """Growing, by promise; only a restarted subscriber may get an earlier one than its former self."""
        self.times: array[float] = array("d")
        self.path: tuple[str, ...] = ()
        self.paths: list[tuple[float, tuple[str, ...]]] = []
        """Each path that differed from the one before, and since when messages came over it."""

    @property
    def switches(self) -> int:
        """How often the path of a message differed from that of the message before."""
        return len(self.paths) - 1

    def path_at(self, time: float) -> tuple[str, ...]:
        """The path by which messages came then; empty before the first."""
        number = bisect_right(self.paths, time, key=itemgetter(0))
        return self.paths[number - 1][1] if number else ()


class SimSubscription:
    """A subscription of a simulated application. `messages` holds what arrived, oldest first."""

    def __init__(
        self,
        peer: str,
        pattern: str,
        keep: bool,
        callback: Callable[[Delivery], None] | None = None,
        where: str | None = None,
    ) -> None:
        self.peer = peer
        self.pattern = pattern
        self.where = where
        """Its filter, as its application wrote it."""
        self.condition = parse(where) if where is not None else None
        self.messages: list[Delivery] = []
        self.received: dict[StreamKey, Received] = {}
        self.last: dict[StreamKey, int] = {}
        """Highest sequence of each publisher, since its peer last started."""
        self.count = 0
        """Messages delivered."""
        self.active: list[tuple[float, float]] = []
        """When it existed; a crash of its peer ends a span, a restart begins the next."""
        self.callback = callback
        self.keep = keep
        self.room: float = float("inf")
        """Messages with a guarantee that its application still has room for."""

    @property
    def is_active(self) -> bool:
        """Whether it exists now."""
        return bool(self.active) and self.active[-1][1] == float("inf")

    def begin(self, now: float) -> None:
        """Its peer knows it from now on."""
        self.active.append((now, float("inf")))
        self.last.clear()

    def end(self, now: float) -> None:
        """It was cancelled, or its peer crashed."""
        if self.is_active:
            self.active[-1] = (self.active[-1][0], now)

    def was_active(self, at: float) -> bool:
        """Whether it existed at a time."""
        return any(begin <= at < end for begin, end in self.active)


class Missing(NamedTuple):
    """A message that a subscription should have got."""

    subscriber: str
    pattern: str
    topic: str
    origin: str
    sequence: int
    published_at: float


class Ledger:
    """Publications and deliveries of one simulation."""

    def __init__(self, check: bool) -> None:
        self._check = check
        self._published: dict[tuple[str, int], list[Published]] = {}
        self.subscriptions: list[SimSubscription] = []
        self.sites: dict[str, Row] = {}
        """What applications said that their sites are."""
        self.published_count = 0
        self.delivered_count = 0

    def __iter__(self) -> Iterator[Published]:
        """Every publisher that put something, in the order of their first message."""
        for incarnations in self._published.values():
            yield from incarnations

    def open(
        self, origin: str, publisher: int, incarnation: int, topic: str, first: int, deadline_s: float
    ) -> Published:
        """A peer opened a publisher."""
        published = Published(origin, publisher, incarnation, topic, first, deadline_s)
        self._published.setdefault((origin, publisher), []).append(published)
        return published

    def put(self, published: Published, payload: object, now: float) -> None:
        """A message was put."""
        published.times.append(now)
        if self._check:
            published.prints.append(_fingerprint(payload))
        self.published_count += 1

    def deliver(self, subscription: SimSubscription, run: DeliveredRun, now: float) -> list[Delivery]:
        """A run reached a subscription; BrokenPromiseError if it must not. What it kept."""
        count = len(run.payloads)
        incarnations = self._published.get((run.origin, run.publisher), ())
        published = incarnations[0] if len(incarnations) == 1 else self._origin_of(subscription, run)
        if self._check:
            self._check_run(subscription, published, run, now)
        key = published.key
        received = subscription.received.get(key)
        if received is None:
            received = subscription.received[key] = Received()
        if received.path != run.path:
            received.path = run.path
            received.paths.append((now, run.path))
        sequence = run.first_sequence
        if count == 1:
            received.sequences.append(sequence)
            received.times.append(now)
        else:
            received.sequences.extend(range(sequence, sequence + count))
            received.times.extend([now] * count)
        subscription.last[key] = sequence + count - 1
        subscription.count += count
        self.delivered_count += count
        if not subscription.keep and subscription.callback is None:
            return []
        deliveries = [
            Delivery(
                run.topic,
                run.origin,
                run.publisher,
                sequence + index,
                payload,
                run.age_s,
                run.path,
                now,
                published.times[sequence + index - published.first],
                run.deadline_s,
            )
            for index, payload in enumerate(run.payloads)
        ]
        if subscription.keep:
            subscription.messages.extend(deliveries)
        return deliveries

    def missing(self, since: float, until: float) -> list[Missing]:
        """Messages put in this time (until excluded) that a subscription existing then did not get."""
        found = []
        for subscription in self.subscriptions:
            for published in self:
                if published.is_selected or not matches(subscription.pattern, published.topic):
                    continue  # whom the selected ones are for is not known here
                if subscription.condition is not None and not subscription.condition.matches(NO_ATTRIBUTES):
                    continue
                received = subscription.received.get(published.key)
                got = set(received.sequences) if received else set()
                for index, put_at in enumerate(published.times):
                    sequence = published.first + index
                    if since <= put_at < until and sequence not in got and subscription.was_active(put_at):
                        found.append(
                            Missing(
                                subscription.peer,
                                subscription.pattern,
                                published.topic,
                                published.origin,
                                sequence,
                                put_at,
                            )
                        )
        return found

    def _origin_of(self, subscription: SimSubscription, run: DeliveredRun) -> Published:
        """The publisher of a run. A restarted peer may number its publishers as its former self did."""
        incarnations = self._published.get((run.origin, run.publisher), [])
        fitting = [published for published in incarnations if self._fits(published, run)]
        for published in reversed(fitting):
            if subscription.last.get(published.key, -1) < run.first_sequence:
                return published
        if fitting:
            return fitting[-1]
        if incarnations:
            return incarnations[-1]
        raise BrokenPromiseError(
            f"{subscription.peer} got {run.topic!r} of publisher {run.publisher} of {run.origin}"
            ": there is no such publisher"
        )

    def _fits(self, published: Published, run: DeliveredRun) -> bool:
        start = run.first_sequence - published.first
        end = start + len(run.payloads)
        if published.topic != run.topic or start < 0 or end > len(published.times):
            return False
        return not self._check or all(
            _fingerprint(payload) == published.prints[start + index]
            for index, payload in enumerate(run.payloads)
        )

    def _check_run(
        self, subscription: SimSubscription, published: Published, run: DeliveredRun, now: float
    ) -> None:
        what = (
            f"{subscription.peer} ({subscription.pattern!r}) got {run.topic!r} number {run.first_sequence} "
            f"of publisher {run.publisher} of {run.origin} at {now:.6f} s"
        )
        if not run.payloads:
            raise BrokenPromiseError(f"{what}: an empty run")
        if not subscription.is_active:
            raise BrokenPromiseError(f"{what}: the subscription does not exist")
        if not matches(subscription.pattern, run.topic):
            raise BrokenPromiseError(f"{what}: it did not ask for that")
        selected = run.selected if isinstance(run, SelectedDelivery | AssuredDelivery) else None
        attributes = selected.attributes if selected is not None else NO_ATTRIBUTES
        if subscription.condition is not None and not subscription.condition.matches(attributes):
            raise BrokenPromiseError(f"{what}, with {attributes}: its filter is {subscription.where!r}")
        to = selected.to if selected is not None else None
        site = self.sites.get(subscription.peer, NO_ATTRIBUTES)
        if to is not None and not to.matches(site):
            raise BrokenPromiseError(f"{what} as a site with {site}: that was for {to.text!r}")
        if not self._fits(published, run):
            raise BrokenPromiseError(f"{what}: that was never published")
        if run.path[0] != run.origin or run.path[-1] != subscription.peer:
            raise BrokenPromiseError(f"{what}: by the path {run.path}")
        if any(run.path.count(peer) > PASSES_MAX for peer in run.path):
            raise BrokenPromiseError(f"{what}: in circles, {run.path}")
        last = subscription.last.get(published.key, -1)
        if last >= run.first_sequence:
            raise BrokenPromiseError(f"{what}: after number {last}, so twice or out of order")


def _fingerprint(payload: object) -> int:
    if isinstance(payload, bytes | bytearray | memoryview):
        return zlib.crc32(payload)
    return zlib.crc32(msgspec.msgpack.encode(payload), 1)
