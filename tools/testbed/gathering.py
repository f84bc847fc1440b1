"""Makes the numbers of a run on the testbed of what its peers noted, as the simulator's ledger gives them."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec

from anabranch.tools.scenarios.measuring import Measured, measure
from anabranch.tools.scenarios.schema import Scenario
from anabranch.tools.testbed.emulating import Course
from anabranch.tools.testbed.orders import GotNote, Note, PutNote, SpanNote
from anabranch.transport.simulator import Published, Received, SimSubscription


def gather(scenario: Scenario, course: Course) -> Measured:
    """Sum up a finished run."""
    records = _Records(scenario, course)
    control, data = _traffic(course, scenario.run.warmup_s)
    return measure(
        scenario,
        records.published,
        records.subscriptions(),
        course.happenings,
        course.truth,
        control_bytes=control,
        data_bytes=data,
        bundles=0,
    )


class _Records:
    """The ledger of a real run."""

    def __init__(self, scenario: Scenario, course: Course) -> None:
        self.published: list[Published] = []
        self._names: dict[int, str] = {}
        self._patterns: dict[int, str] = {}
        number = 0
        for table in scenario.subscriptions:
            for pattern in table.patterns:
                number += 1
                self._names[number], self._patterns[number] = table.name or "", pattern
        self._subscriptions: dict[tuple[str, int], SimSubscription] = {}
        self._by_key: dict[tuple[int, str, int], Published] = {}
        flows = scenario.flows
        got: list[tuple[str, GotNote]] = []
        for path in course.notes:
            peer = path.name.rpartition("-")[0]
            for note in _notes(path):
                at = note.at - course.start_at
                if isinstance(note, PutNote):
                    key = (note.flow, peer, note.incarnation)
                    published = self._by_key.get(key)
                    if published is None:
                        flow = flows[note.flow]
                        published = self._by_key[key] = Published(
                            peer, note.flow, note.incarnation, flow.topic, 0, (flow.deadline_ms or 0.0) / 1e3
                        )
                        self.published.append(published)
                    published.times.append(at)
                elif isinstance(note, SpanNote):
                    subscription = self._subscription(peer, note.subscription)
                    if note.begins:
                        subscription.begin(at)
                    else:
                        subscription.end(at)
                else:
                    got.append((peer, note))
        for peer, note in got:
            self._take(peer, note, course.start_at)
        self._end_at_crashes(course)

    def subscriptions(self) -> Iterator[tuple[str, SimSubscription]]:
        """With the names that results call them by."""
        for (peer, number), subscription in sorted(self._subscriptions.items()):
            yield self._names[number] or peer, subscription

    def _subscription(self, peer: str, number: int) -> SimSubscription:
        found = self._subscriptions.get((peer, number))
        if found is None:
            found = SimSubscription(peer, self._patterns[number], keep=False)
            self._subscriptions[peer, number] = found
        return found

    def _take(self, peer: str, note: GotNote, start_at: float) -> None:
        published = self._by_key.get((note.flow, note.path[0], note.flow_incarnation))
        if published is None:
            return
        subscription = self._subscription(peer, note.subscription)
        received = subscription.received.setdefault(published.key, Received())
        at = note.at - start_at
        if received.path != note.path:
            received.path = note.path
            received.paths.append((at, note.path))
        if note.sequence < len(published.times):
            received.sequences.append(note.sequence)
            received.times.append(at)
            subscription.count += 1

    def _end_at_crashes(self, course: Course) -> None:
        """A killed process could not note the end of its subscriptions."""
        for (peer, _), subscription in self._subscriptions.items():
            for down in course.downs.get(peer, []):
                subscription.active = [
                    (begin, min(end, down) if begin < down else end) for begin, end in subscription.active
                ]


def _notes(path: Path) -> Iterator[Note]:
    if not path.exists():
        return
    decoder = msgspec.json.Decoder(Note)
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield decoder.decode(line)


def _traffic(course: Course, since: float) -> tuple[int, int]:
    """Bytes of control and of data that all peers sent from a time on."""
    sums: dict[str, int] = defaultdict(int)
    for told in course.traffic.values():
        if not told:
            continue
        before = next((counters for at, counters in reversed(told) if at <= since), {})
        for key in ("sent.control_bytes", "sent.data_bytes"):
            sums[key] += told[-1][1].get(key, 0) - before.get(key, 0)
    return sums["sent.control_bytes"], sums["sent.data_bytes"]
