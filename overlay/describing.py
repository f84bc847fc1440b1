"""The node's view of itself: reports for people, records for the logs, invariants for tests."""

from itertools import pairwise

import msgspec

from anabranch.overlay.actions import DeliveredRun
from anabranch.overlay.attributes import plain
from anabranch.overlay.choosing import Choice
from anabranch.overlay.headers import RecordKind
from anabranch.overlay.interests import in_order, shown
from anabranch.overlay.parts import Parts
from anabranch.overlay.qos import Role
from anabranch.overlay.records import ControlRecord, DeliveryRecord, LinkRecord, RouteRecord
from anabranch.overlay.routes import Asked, PathChange
from anabranch.overlay.sessions import LinkChange

REPORT_PEERS_MAX = 2000


def report(parts: Parts, now: float) -> dict[str, object]:
    """Links, routes, known peers and counters, in JSON types."""
    links = [
        {
            "peer": link.peer,
            "state": link.state.value,
            "role": link.role.value,
            "dialled": link.address is not None,
            "delay_ms": round(link.estimate.delay_s * 1e3, 3),
            "jitter_ms": round(link.estimate.jitter_s * 1e3, 3),
            "loss": round(link.estimate.loss, 4),
            "availability": round(link.estimate.availability, 4),
            "silent_s": round(max(0.0, now - link.heard_at), 3),
        }
        for _, link in sorted(parts.links.by_peer.items())
    ]
    graph = parts.topology.graph()
    routes = [
        {
            "destination": destination,
            "path": list(choice.paths[0]),
            "delay_ms": round(
                sum(graph.get(a, {}).get(b, 0.0) for a, b in pairwise(choice.paths[0])) * 1e3, 3
            ),
            "copies": [list(path) for path in choice.paths[1:]],
            "deadline_ms": round(demand.deadline_s * 1e3, 3),
            "availability": round(choice.availability, 6),
            "availability_wanted": demand.availability,
            **({"variant": demand.variant.value} if demand.variant is not None else {}),
        }
        for (destination, demand), choice in sorted(parts.routes.chosen().items(), key=_by_receiver)
    ]
    mesh = {
        peer: {
            neighbour: {
                "delay_ms": round(edge.delay_s * 1e3, 3),
                "loss": round(edge.loss, 4),
                "availability": round(edge.availability, 4),
            }
            for neighbour, edge in sorted(parts.topology.announced(peer).items())
        }
        for peer in sorted(parts.topology.peers())[:REPORT_PEERS_MAX]
    }
    peers = sorted(parts.spreading.book.origins())[:REPORT_PEERS_MAX]
    return {
        "peer": parts.identity.peer,
        "role": parts.config.role.value,
        "variant": parts.config.variant.value,
        "epoch": parts.identity.epoch,
        "links": links,
        "routes": routes,
        "mesh": mesh,
        "requests": {"open": len(parts.replies.harvests), "kept": len(parts.replies.tending)},
        "peers": {
            peer: [shown(each) for each in in_order(parts.interests.patterns_of(peer))] for peer in peers
        },
        "sites": {peer: plain(parts.sites.of(peer)) for peer in sorted(parts.sites.rows)[:REPORT_PEERS_MAX]},
        "switches": parts.routes.switches,
        "counters": dict(sorted(parts.counters.items())),
    }


def document(view: dict[str, object]) -> bytes:
    """A report as it travels."""
    return msgspec.json.encode(view)


def delivery_record(parts: Parts, run: DeliveredRun) -> DeliveryRecord:
    """A run was delivered."""
    return DeliveryRecord(
        ts=int(run.received_at * 1e6),
        peer=parts.identity.peer,
        epoch=parts.identity.epoch,
        topic=run.topic,
        origin=run.origin,
        publisher=run.publisher,
        seq=run.first_sequence,
        count=len(run.payloads),
        age_us=int(run.age_s * 1e6),
        late=0 < run.deadline_s < run.age_s,
        path=list(run.path),
        origin_epoch=run.epoch,
        deadline_us=int(run.deadline_s * 1e6),
        has_copies=run.has_copies,
        repeated=run.repeated,
    )


def link_record(parts: Parts, change: LinkChange, now: float) -> LinkRecord:
    """A link changed its state."""
    return LinkRecord(
        ts=int(now * 1e6),
        peer=parts.identity.peer,
        epoch=parts.identity.epoch,
        neighbour=change.link.peer,
        state=change.state.value,
        cause=change.cause,
        connection=change.link.id,
    )


def route_record(parts: Parts, change: PathChange, now: float) -> RouteRecord:
    """The path to a receiver changed."""
    return RouteRecord(
        ts=int(now * 1e6),
        peer=parts.identity.peer,
        epoch=parts.identity.epoch,
        destination=change.destination,
        path=list(change.path),
        copies=[list(path) for path in change.copies],
        cost_us=int(change.cost_s * 1e6),
        cause=change.cause,
    )


def control_record(parts: Parts, now: float) -> ControlRecord:
    """All counters, as they stand."""
    return ControlRecord(
        ts=int(now * 1e6),
        peer=parts.identity.peer,
        epoch=parts.identity.epoch,
        counters=dict(parts.counters),
        variant=parts.config.variant.value,
    )


def check_invariants(parts: Parts) -> None:
    """AssertionError when the node's tables contradict each other."""
    parts.links.check_invariants()
    parts.replies.check_invariants()
    config = parts.config
    assert len(parts.links.by_peer) <= config.links_max
    assert parts.links.opening_count() <= config.links_opening_max
    assert len(parts.spreading.book) <= config.records_max + len(RecordKind)
    assert parts.identity.peer not in parts.links.by_peer
    if config.role is not Role.CLIENT:
        own = parts.topology.announced(parts.identity.peer)
        usable = {peer for peer, link in parts.links.by_peer.items() if link.is_usable()}
        assert set(own) == usable, f"{parts.identity.peer}: routes over {set(own)}, usable {usable}"
    for (destination, _), choice in parts.routes.chosen().items():
        for path in choice.paths:
            assert path[0] == parts.identity.peer
            assert path[-1] == destination
            assert len(set(path)) == len(path), f"loop in {path}"
        assert len(set(choice.paths)) == len(choice.paths), f"a path twice in {choice.paths}"
    for record in parts.spreading.book:
        assert record.origin != parts.identity.peer or record.epoch <= parts.identity.epoch


def _by_receiver(item: tuple[Asked, Choice]) -> tuple[str, float, float, str]:
    (destination, demand), _ = item
    return destination, demand.deadline_s, demand.availability, demand.variant or ""
