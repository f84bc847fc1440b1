"""Publications that filters or a selection of sites decide about: whom each is for, which way it leaves.

Each set of receivers is a stream of its own, with its own number and sequence, so that receivers still see
losses, and don't wait for what was never for them.
"""

from collections.abc import Mapping

import msgspec

from anabranch.overlay.actions import Deliver, SelectedDelivery
from anabranch.overlay.codec import decode_value
from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.errors import DropReason
from anabranch.overlay.headers import Flag, SelectedRun
from anabranch.overlay.identity import Identity
from anabranch.overlay.matching import Matching
from anabranch.overlay.outlets import MESSAGE_BYTES, Flow, Outlet
from anabranch.overlay.publishing import Parcel, Publishing
from anabranch.overlay.routes import Route
from anabranch.overlay.selections import Selected, Selections

FLOWS_MAX = 256
"""Sets of receivers that one publisher remembers; a forgotten one begins a new stream."""


class Selecting:
    """Puts what is for selected receivers into the parcels of the next flush."""

    def __init__(
        self,
        identity: Identity,
        config: Config,
        publishing: Publishing,
        matching: Matching,
        selections: Selections,
        counters: Counters,
    ) -> None:
        self._identity = identity
        self._inline_max = config.inline_max_bytes
        self._bundle_max = config.bundle_max_bytes
        self._publishing = publishing
        self._matching = matching
        self._selections = selections
        self._counters = counters

    def receivers(
        self, topic: str, attributes: Mapping[str, object] | None, to: str | None
    ) -> tuple[str, ...]:
        """The peers, ourselves included, that such a publication would be for."""
        return self._matching.selected_peers(topic, self._selections.selected(attributes, to))

    def publish(
        self,
        outlet: Outlet,
        payload: object,
        size: int,
        attributes: Mapping[str, object] | None,
        to: str | None,
        now: float,
    ) -> Flow:
        """Take one publication; it leaves with the next flush. The flow has given it its number."""
        selected = self._selections.selected(attributes, to)
        me = self._identity.peer
        publishing = self._publishing
        publishing.close_run(outlet, now)
        may = self._matching.restricting.may_publish(me, outlet.topic)
        peers = self._matching.selected_peers(outlet.topic, selected) if may else ()
        others = tuple(peer for peer in peers if peer != me) if me in peers else peers
        flow = self._flow(outlet, others)
        sequence = flow.next_sequence
        flow.next_sequence += 1
        self._counters["published"] += 1
        subscriptions = self._matching.selected_subscriptions(outlet.topic, selected) if may else ()
        if subscriptions:
            publishing.ready.append(
                Deliver(subscriptions, self._own_run(outlet, flow, sequence, payload, selected, now))
            )
        if not others:
            if not subscriptions:
                self._counters.add("published_unwanted")
                if not may:
                    self._counters.drop(DropReason.DENIED)
            return flow
        route = publishing.route(others, outlet.demand)
        publishing.note_pause(outlet, route, bool(subscriptions))
        if route.unreached:
            self._counters.drop(DropReason.NO_ROUTE, len(route.unreached))
        run = SelectedRun(outlet.topic, flow.publisher, sequence, [payload], [], *selected.wire)
        self._add(outlet, route, run, size, now)
        return flow

    @property
    def is_full(self) -> bool:
        """Whether what waits should leave now."""
        return sum(parcel.size for parcel in self._publishing.parcels) >= self._bundle_max

    def _flow(self, outlet: Outlet, receivers: tuple[str, ...]) -> Flow:
        flow = outlet.flows.pop(receivers, None) or self._publishing.new_flow()
        outlet.flows[receivers] = flow
        if len(outlet.flows) > FLOWS_MAX:
            del outlet.flows[next(iter(outlet.flows))]
        return flow

    def _add(self, outlet: Outlet, route: Route, run: SelectedRun, size: int, now: float) -> None:
        """Into the last parcel, if it goes the same way, else into one of its own: order is kept."""
        parcels = self._publishing.parcels
        parcel = parcels[-1] if parcels else None
        weight = size + MESSAGE_BYTES
        if (
            parcel is None
            or parcel.flags != Flag.SELECTED
            or parcel.route is not route
            or parcel.deadline_s != outlet.demand.deadline_s
            or parcel.owner is not outlet.queued
            or parcel.size + weight > self._bundle_max
        ):
            demand, flags = outlet.demand, int(Flag.SELECTED)
            parcel = Parcel(route, demand.deadline_s, now, [], [], 0, 0, flags, outlet.queued)
            parcels.append(parcel)
        last = parcel.runs[-1] if parcel.runs else None
        is_large = size > self._inline_max
        if is_large:
            parcel.detach(run, [0])
        parcel.size += weight
        parcel.messages += 1
        if isinstance(last, SelectedRun) and not is_large and _continues(last, run):
            last.payloads += run.payloads
        else:
            parcel.runs.append(run)

    def _own_run(
        self, outlet: Outlet, flow: Flow, sequence: int, payload: object, selected: Selected, now: float
    ) -> SelectedDelivery:
        me = self._identity.peer
        value = decode_value(memoryview(payload)) if type(payload) is msgspec.Raw else payload
        return SelectedDelivery(
            outlet.topic,
            me,
            flow.publisher,
            sequence,
            [value],
            0.0,
            now,
            outlet.demand.deadline_s,
            (me,),
            self._identity.epoch,
            selected=selected,
        )


def _continues(last: SelectedRun, run: SelectedRun) -> bool:
    return (
        last.publisher == run.publisher
        and last.to == run.to
        and last.attributes == run.attributes
        and last.first_sequence + len(last.payloads) == run.first_sequence
    )
