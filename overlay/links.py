"""The links of this peer: state, estimates, life signs, probes under way. Decides nothing about routes."""

from collections.abc import Iterator

from anabranch.overlay.config import Config
from anabranch.overlay.estimators import Estimate
from anabranch.overlay.identifiers import LinkId
from anabranch.overlay.qos import LinkState, Role
from anabranch.overlay.queues import LinkQueue

PROBES_MAX = 16
"""Probes of one link that may be unanswered at a time; older ones count as lost."""


class Link:
    """One connection to a neighbour."""

    __slots__ = (
        "address",
        "asked_who",
        "backlog_s",
        "binding",
        "epoch",
        "estimate",
        "heard_at",
        "hole_until",
        "id",
        "is_quiet",
        "is_watched",
        "next_probe",
        "opened_at",
        "overdue",
        "owed_since",
        "owes_ack",
        "peer",
        "probes",
        "queue",
        "quiet_at",
        "role",
        "state",
    )

    def __init__(
        self, link_id: LinkId, address: str | None, now: float, estimate: Estimate, queue: LinkQueue
    ) -> None:
        self.id = link_id
        self.address = address
        """The address this peer dialled; None when the neighbour dialled us."""
        self.binding = b""
        """The key of this connection, which both ends sign; empty in an open mesh."""
        self.opened_at = now
        self.heard_at = now
        self.state = LinkState.OPENING
        self.peer = ""
        """The neighbour's name; empty until its hello."""
        self.epoch = 0
        self.asked_who = False
        """Whether we asked the neighbour to introduce itself again."""
        self.role = Role.PEER
        self.is_quiet = False
        """Silent for longer than a probe and its echo take."""
        self.estimate = estimate
        self.queue = queue
        """What waits for it and what is under way on it; the shell sends from there."""
        self.quiet_at = 0.0
        """When it was last found quiet."""
        self.hole_until = 0.0
        """Until when what is missing of what it brought may still come."""
        self.owes_ack = False
        """Whether a timer looks whether an acknowledgement is to be given."""
        self.owed_since = 0.0
        """When the first thing arrived that was not acknowledged yet."""
        self.is_watched = False
        """Whether a timer looks after acknowledgements to come."""
        self.overdue = 0
        """How often in a row one did not come in time."""
        self.backlog_s = 0.0
        """How long what waits in its queue will take; 0 unless that is much."""
        self.probes: dict[int, float] = {}
        self.next_probe = 1

    @property
    def is_client(self) -> bool:
        """Whether the neighbour is a light client."""
        return self.role is Role.CLIENT

    @property
    def loss(self) -> float:
        """Share of what is sent that does not arrive, as far as can be told: all of it while it is quiet."""
        return 1.0 if self.is_quiet else self.estimate.loss

    def is_usable(self) -> bool:
        """Whether routes may use it."""
        return self.state is LinkState.UP

    def start_probe(self, now: float) -> tuple[int, list[tuple[int, float]]]:
        """The sequence of a new probe; and which are given up for it, with when they were sent."""
        lost = []
        while len(self.probes) >= PROBES_MAX:
            oldest = next(iter(self.probes))
            lost.append((oldest, self.probes.pop(oldest)))
        sequence = self.next_probe
        self.next_probe = sequence % 0xFFFFFFFF + 1
        self.probes[sequence] = now
        return sequence, lost

    def end_probe(self, sequence: int) -> float | None:
        """When an echoed probe was sent; None for one that is not under way."""
        return self.probes.pop(sequence, None)

    def overdue_probes(self, now: float, patience_s: float) -> list[tuple[int, float]]:
        """Forget probes sent longer ago than that; which, and when they were sent."""
        overdue = [(sequence, sent) for sequence, sent in self.probes.items() if now - sent > patience_s]
        for sequence, _ in overdue:
            del self.probes[sequence]
        return overdue

    def silence_limits(self, config: Config) -> tuple[float, float]:
        """After how much silence it is suspect, and down."""
        round_trip = 2 * self.estimate.delay_s
        return config.suspect_after_s + 2 * round_trip, config.down_after_s + 3 * round_trip


class LinkTable:
    """Links by id, and by the neighbour once its hello is complete. At most one per neighbour."""

    def __init__(self) -> None:
        self._by_id: dict[LinkId, Link] = {}
        self.by_peer: dict[str, Link] = {}
        """Neighbours with a completed hello. Read-only outside of this class."""

    def __iter__(self) -> Iterator[Link]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, link_id: LinkId) -> Link | None:
        """The link of this id."""
        return self._by_id.get(link_id)

    def add(self, link: Link) -> None:
        """A connection came up."""
        self._by_id[link.id] = link

    def bind(self, link: Link, peer: str, epoch: int, role: Role, now: float) -> None:
        """The neighbour on this link said who it is."""
        link.peer, link.epoch, link.role = peer, epoch, role
        link.state = LinkState.UP
        link.heard_at = now
        self.by_peer[peer] = link

    def remove(self, link_id: LinkId) -> Link | None:
        """The connection is gone."""
        link = self._by_id.pop(link_id, None)
        if link is not None:
            link.state = LinkState.DOWN
            if self.by_peer.get(link.peer) is link:
                del self.by_peer[link.peer]
        return link

    def opening_count(self) -> int:
        """Connections without a completed hello."""
        return len(self._by_id) - len(self.by_peer)

    def check_invariants(self) -> None:
        """What must hold after every input."""
        for peer, link in self.by_peer.items():
            assert link.peer == peer
            assert self._by_id.get(link.id) is link
            assert link.state in (LinkState.UP, LinkState.SUSPECT)
