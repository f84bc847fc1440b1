"""Repair at the peer that notices: what a dying link still held takes another way to its receivers.

Works on any variant but `dp`, for bundles of our own and for those we relay. What has arrived although it was
not acknowledged arrives twice, and is delivered once.
"""

import msgspec

from anabranch.overlay.actions import Action, SendBundle
from anabranch.overlay.bundles import OutBundle
from anabranch.overlay.codec import decode_tail
from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.errors import DropReason
from anabranch.overlay.headers import PASSES_MAX, PATH_MAX_PEERS, Subtree, Tail
from anabranch.overlay.identity import Identity
from anabranch.overlay.links import Link, LinkTable
from anabranch.overlay.paths import Graph, Path, shortest_paths
from anabranch.overlay.qos import LinkState, Role, Variant
from anabranch.overlay.routes import Routes
from anabranch.overlay.trees import encode_tree, join_paths, receivers_in

PATHS_MAX = 64
"""Sets of peers to avoid for which the shortest paths are remembered."""

Branches = tuple[tuple[str, bytes], ...]


class Detour(msgspec.Struct, frozen=True):
    """The other way for what a tail asks of one link."""

    branches: Branches
    unreached: tuple[str, ...]


class Recovery:
    """Takes bundles off links that went quiet or down, and sends them another way."""

    def __init__(
        self, identity: Identity, config: Config, links: LinkTable, routes: Routes, counters: Counters
    ) -> None:
        self._identity = identity
        self._config = config
        self._links = links
        self._routes = routes
        self._topology = routes.topology
        self._counters = counters
        self._stamp: tuple[int, frozenset[str]] = (-1, frozenset())
        self._number = 0
        """How often the ground that detours are chosen on has changed."""
        self._graph: Graph = {}
        self._paths: dict[tuple[str, ...], dict[str, Path]] = {}
        self._detours: dict[tuple[str, bytes], Detour] = {}
        self._is_on = config.recovery and config.variant is not Variant.DP

    def rescue(self, link: Link, now: float) -> list[Action]:
        """A link went quiet, suspect or down: what it held and another way reaches goes there."""
        is_down = link.state is LinkState.DOWN
        if not self._is_on:
            return self._give_up(link) if is_down else []
        sound = self._sound_neighbours()
        sent, waiting = link.queue.take_bundles(
            lambda bundle: is_down or not self._detour(link.peer, bundle.tail, sound).unreached
        )
        actions: list[Action] = []
        for bundle in sent:
            if now - bundle.started_at <= self._config.recovery_max_s:
                actions += self._send(link.peer, bundle, sound, DropReason.UNRECOVERED)
            else:
                self._counters.drop(DropReason.UNRECOVERED, bundle.messages or 1)
        for bundle in waiting:
            actions += self._send(link.peer, bundle, sound, DropReason.LINK_LOST)
        return actions

    def detour(self, peer: str, bundle: OutBundle) -> list[Action]:
        """The neighbour that a bundle should go to next is gone or quiet: another way, if there is one."""
        link = self._links.by_peer.get(peer)
        sound = self._sound_neighbours()
        if link is not None and (not self._is_on or self._detour(peer, bundle.tail, sound).unreached):
            return [SendBundle(link.id, bundle)]
        if not self._is_on:
            self._counters.drop(DropReason.NO_LINK, bundle.messages or 1)
            return []
        return self._send(peer, bundle, sound, DropReason.NO_LINK)

    def around(self, link: Link, bundle: OutBundle, now: float) -> list[Action] | None:
        """Another way than this link, which stands, for a bundle that it lost; None where there is none."""
        sound = self._sound_neighbours() - {link.peer}
        if (
            not self._is_on
            or now - bundle.started_at > self._config.recovery_max_s
            or self._detour(link.peer, bundle.tail, sound).unreached
        ):
            return None
        return self._send(link.peer, bundle, sound, DropReason.UNRECOVERED)

    # Inside

    def _give_up(self, link: Link) -> list[Action]:
        _, waiting = link.queue.take_bundles(lambda _: True)
        lost = sum(bundle.messages or 1 for bundle in waiting)
        if lost:
            self._counters.drop(DropReason.LINK_LOST, lost)
        return []

    def _sound_neighbours(self) -> frozenset[str]:
        """Links that are up and heard, over which a detour may go: also a new one to the same peer."""
        return frozenset(
            name for name, link in self._links.by_peer.items() if link.is_usable() and not link.is_quiet
        )

    def _send(
        self, peer: str, bundle: OutBundle, sound: frozenset[str], otherwise: DropReason
    ) -> list[Action]:
        """Send a bundle that was to go to `peer` over its detour."""
        detour = self._detour(peer, bundle.tail, sound)
        actions: list[Action] = []
        for name, tail in detour.branches:
            link = self._links.by_peer[name]
            copy = OutBundle(
                bundle.sequence,
                bundle.started_at,
                bundle.deadline_us,
                tail,
                bundle.body,
                bundle.size,
                bundle.messages,
                bundle.flags,
                owner=bundle.owner,
                origin=bundle.origin,
            )
            actions.append(SendBundle(link.id, copy))
            self._counters.add("rerouted", bundle.messages or 1)
        if detour.unreached:
            self._counters.drop(otherwise, bundle.messages or 1)
        return actions

    def _detour(self, peer: str, tail: bytes, sound: frozenset[str]) -> Detour:
        """Where a bundle goes instead that was to go to `peer` with this tail."""
        stamp = (self._topology.version, sound)
        if stamp != self._stamp:
            self._stamp = stamp
            self._number += 1
            self._paths.clear()
            self._detours.clear()
            graph = self._topology.graph()
            own = graph.get(self._identity.peer, {})
            row = {name: cost for name, cost in own.items() if name in sound}
            self._graph = {**graph, self._identity.peer: row}
        key = (peer, tail)
        detour = self._detours.get(key)
        if detour is None:
            if len(self._detours) >= self._config.cache_max:
                del self._detours[next(iter(self._detours))]
            detour = self._detours[key] = self._find(peer, decode_tail(tail), sound)
        return detour

    def _find(self, peer: str, tail: Tail, sound: frozenset[str]) -> Detour:
        if tail.destinations or self._config.role is Role.CLIENT:
            return self._find_for_client(tail, sound)
        receivers = receivers_in(peer, Subtree(tail.deliver, tail.branches))
        via = tuple(tail.via)
        if len(via) >= PATH_MAX_PEERS // 2:
            return Detour((), receivers)
        aside = self._shortest(via)
        twice = tuple(name for name in dict.fromkeys(via) if via.count(name) >= PASSES_MAX)
        back = self._shortest(twice) if any(name not in aside for name in receivers) else {}
        paths = [aside.get(name) or back.get(name) for name in receivers]
        found = [path for path in paths if path is not None]
        unreached = tuple(name for name, path in zip(receivers, paths, strict=True) if path is None)
        generation = _apart(tail.generation, len(via), self._number)
        branches = encode_tree(join_paths(found), tail.origin, tail.epoch, generation, tail.via, tail.copies)
        return Detour(branches, unreached)

    def _find_for_client(self, tail: Tail, sound: frozenset[str]) -> Detour:
        """A light client leaves it to another peer that it is attached to."""
        destinations = tuple(tail.destinations)
        attached = next((name for name in self._links.by_peer if name in sound), None)
        if attached is None:
            return Detour((), destinations)
        return Detour(self._routes.attached_route(destinations, attached).branches, ())

    def _shortest(self, avoided: tuple[str, ...]) -> dict[str, Path]:
        """Shortest paths that pass none of these peers."""
        paths = self._paths.get(avoided)
        if paths is None:
            if len(self._paths) >= PATHS_MAX:
                del self._paths[next(iter(self._paths))]
            may_relay = self._topology.may_relay
            paths = self._paths[avoided] = shortest_paths(
                self._graph, self._identity.peer, lambda name: name not in avoided and may_relay(name)
            )
            del paths[self._identity.peer]
        return paths


def _apart(generation: int, passed: int, number: int) -> int:
    """The generation of a detour: another one than its route's, and than other detours of that route, for
    what takes it may be overtaken or overtake. Below 0, as no origin's is."""
    return -((abs(generation) % 2**32 << 24) + (passed << 16) + number % 2**16)
