"""The routes of one peer in a mesh that is drawn by hand."""

from anabranch.overlay.config import Config
from anabranch.overlay.forwarding import Forwarding
from anabranch.overlay.headers import LinkEntry
from anabranch.overlay.identity import Identity
from anabranch.overlay.routes import Route, Routes
from anabranch.overlay.topology import Topology

PEERS = "abcdefg"
Links = dict[tuple[str, str], int]


class World:
    """The routes of peer `a` in a mesh that is drawn by hand."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        self.identity = Identity("a", 5, 1)
        self.topology = Topology(self.config.spread_change_ratio, self.config.spread_change_s)
        self.routes = Routes(self.identity, self.config, self.topology)

    def draw(self, links: Links, clients: str = "") -> None:
        """These links and no others."""
        entries: dict[str, list[LinkEntry]] = {peer: [] for peer in PEERS if peer not in clients}
        for (one, other), delay_ms in links.items():
            for here, there in ((one, other), (other, one)):
                if here in entries:
                    entries[here].append(LinkEntry(there, delay_ms * 1000, 0, 0, 10**6, there in clients))
        for peer, announced in entries.items():
            if peer == "a":
                self.topology.set_own("a", announced)
            else:
                self.topology.set_links(peer, announced)

    def causes(self) -> list[tuple[str, str, str]]:
        """(destination, path, cause) of the changes since the last look."""
        return [
            (change.destination, "".join(change.path), change.cause) for change in self.routes.take_changes()
        ]


def walk(route: Route) -> list[str]:
    """Who gets a bundle of this route, as often as it is asked to deliver; every hop reads its own tail."""
    receivers = []
    travelling = list(route.branches)
    while travelling:
        peer, tail = travelling.pop()
        plan = Forwarding(peer, 10, 100).plan(tail)
        assert plan.path[0] == "a"
        assert plan.path[-1] == peer
        if plan.deliver:
            receivers.append(peer)
        travelling += plan.branches
    return sorted(receivers)
