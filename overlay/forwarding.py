"""What to do with a bundle that arrived: deliver, pass on, both. Decided by its tail alone, and cached."""

from itertools import pairwise

import msgspec

from anabranch.overlay.codec import decode_subtree, decode_tail, encode_tail
from anabranch.overlay.errors import DropReason, PeerError
from anabranch.overlay.headers import PASSES_MAX, PATH_MAX_PEERS, Tail
from anabranch.overlay.identifiers import SubscriptionId, is_peer_name
from anabranch.overlay.ordering import Stream
from anabranch.overlay.routes import Route

PLANS_MAX_BYTES = 2 * 1024 * 1024
"""Tails remembered, all together; a longer one is read anew each time."""


class Familiar(msgspec.Struct):
    """What is remembered of the last run that came with a tail: the next is likely of the same stream."""

    topic: str
    publisher: int
    stream: Stream
    subscriptions: tuple[SubscriptionId, ...]
    version: int
    """Of the local subscriptions."""


class ForwardPlan(msgspec.Struct):
    """What one tail asks of this peer."""

    origin: str
    epoch: int
    generation: int
    path: tuple[str, ...]
    """Peers passed, this one last."""
    deliver: bool
    branches: tuple[tuple[str, bytes], ...]
    """Next peers, each with its tail."""
    destinations: tuple[str, ...]
    """Filled when a light client left the routing to us."""
    has_copies: bool = False
    """Whether it also comes over other paths."""
    familiar: Familiar | None = None


class Forwarding:
    """Plans by tail; the tail of a flow stays the same, so nearly every bundle is one look-up."""

    def __init__(self, me: str, cache_max: int, branches_max: int) -> None:
        self._me = me
        self._cache_max = cache_max
        self._branches_max = branches_max
        self.plans: dict[bytes, ForwardPlan] = {}
        """By tail. Read-only outside of this class."""
        self._bytes = 0
        self._attached: dict[bytes, tuple[Route, tuple[tuple[str, bytes], ...]]] = {}

    def plan(self, tail: bytes) -> ForwardPlan:
        """What this tail asks for; PeerError if it is malformed."""
        plan = self.plans.get(tail)
        if plan is None:
            plan = self._read(tail)
            if len(tail) <= PLANS_MAX_BYTES:
                self.plans[tail] = plan
                self._bytes += len(tail)
            while len(self.plans) > self._cache_max or self._bytes > PLANS_MAX_BYTES:
                oldest = next(iter(self.plans))
                del self.plans[oldest]
                self._attached.pop(oldest, None)
                self._bytes -= len(oldest)
        return plan

    def attached_branches(
        self, tail: bytes, plan: ForwardPlan, route: Route
    ) -> tuple[tuple[str, bytes], ...]:
        """The next peers of a light client's bundle, over our route to its receivers."""
        known = self._attached.get(tail)
        if known is not None and known[0] is route:
            return known[1]
        branches = []
        for peer, own_tail in route.branches:
            own = decode_tail(own_tail)
            below = Tail(
                plan.origin,
                plan.epoch,
                route.generation,
                list(plan.path),
                own.deliver,
                own.branches,
                copies=own.copies,
            )
            branches.append((peer, encode_tail(below)))
        found = tuple(branches)
        if tail in self.plans:
            self._attached[tail] = (route, found)
        return found

    def _read(self, encoded: bytes) -> ForwardPlan:
        tail = decode_tail(encoded)
        via = tail.via
        names = (tail.origin, *via, *(peer for peer, _ in tail.branches), *tail.destinations)
        if not all(is_peer_name(name) for name in names):
            raise PeerError(DropReason.MALFORMED, "peer name in tail")
        if not via or via[0] != tail.origin or len(via) > PATH_MAX_PEERS:
            raise PeerError(DropReason.MALFORMED, "path in tail")
        next_peers = {peer for peer, _ in tail.branches}
        if self._me in via and tail.deliver:
            raise PeerError(DropReason.MALFORMED, "comes back to be delivered")
        path = [*via, self._me]
        if any(path.count(peer) > PASSES_MAX for peer in path) or any(a == b for a, b in pairwise(path)):
            raise PeerError(DropReason.MALFORMED, "a peer too often on the path")
        if len(next_peers) != len(tail.branches):
            raise PeerError(DropReason.MALFORMED, "a next peer twice in tail")
        if len(tail.branches) > self._branches_max:
            raise PeerError(DropReason.MALFORMED, "too many branches")
        branches = []
        for peer, raw in tail.branches:
            subtree = decode_subtree(raw)
            passes = path.count(peer)
            if peer == self._me or passes >= PASSES_MAX or (passes and subtree.deliver):
                raise PeerError(DropReason.MALFORMED, "loop in route")
            below = Tail(
                tail.origin,
                tail.epoch,
                tail.generation,
                path,
                subtree.deliver,
                subtree.branches,
                copies=tail.copies,
            )
            branches.append((peer, encode_tail(below)))
        return ForwardPlan(
            tail.origin,
            tail.epoch,
            tail.generation,
            tuple(path),
            tail.deliver,
            tuple(branches),
            tuple(tail.destinations),
            tail.copies > 1,
        )
