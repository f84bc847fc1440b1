"""Bundles of this peer to a few named receivers, for what is not an application's plain publication."""

from collections.abc import Sequence

from anabranch.overlay.actions import Action, SendBundle
from anabranch.overlay.bundles import OutBundle
from anabranch.overlay.codec import Frame
from anabranch.overlay.config import Config
from anabranch.overlay.links import LinkTable
from anabranch.overlay.paths import Path
from anabranch.overlay.qos import BEST_EFFORT, Demand, Role
from anabranch.overlay.routes import Route, Routes
from anabranch.overlay.sealing import Sealing


class Posting:
    """Finds the route and addresses the bundle; a light client leaves the routing to its peer."""

    def __init__(self, config: Config, links: LinkTable, routes: Routes, sealing: Sealing | None) -> None:
        self._sealing = sealing
        self._is_client = config.role is Role.CLIENT
        self._links = links
        self._routes = routes
        self._sequence = 0

    def route(self, peers: tuple[str, ...], demand: Demand = BEST_EFFORT) -> Route:
        """The way to these peers."""
        if not self._is_client:
            return self._routes.route(peers, demand)
        attached = next((peer for peer, link in self._links.by_peer.items() if link.is_usable()), None)
        if attached is None:
            return Route(0, (), 0, peers)
        return self._routes.attached_route(peers, attached)

    def along(self, ways: tuple[Path, ...]) -> Route:
        """Just these ways, which start here."""
        return self._routes.along(ways)

    def ways(self, peer: str, demand: Demand) -> tuple[Path, ...]:
        """The ways that `route` takes to a peer, as far as we know them."""
        return () if self._is_client else self._routes.paths(peer, demand)

    def post(
        self,
        route: Route,
        body: Sequence[Frame],
        flags: int,
        messages: int,
        started_at: float,
        deadline_us: int,
    ) -> list[Action]:
        """Send a body over a route."""
        if not route.branches:
            return []
        self._sequence += 1
        if self._sealing is not None:
            body = self._sealing.seal(body, route.receivers, flags, deadline_us)
        size = sum(map(len, body))
        actions: list[Action] = []
        for peer, tail in route.branches:
            link = self._links.by_peer.get(peer)
            if link is not None:
                bundle = OutBundle(
                    self._sequence, started_at, deadline_us, tail, list(body), size, messages, flags
                )
                actions.append(SendBundle(link.id, bundle))
        return actions
