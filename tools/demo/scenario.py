"""What the demonstration plays: peers, links with their delays, flows, and what happens when."""

import enum
import itertools

import msgspec

from anabranch.overlay.errors import UsageError

SECONDS = 30.0
SECONDS_MIN = 5.0
"""Less leaves the mesh no time to notice one trouble before the next."""
SECONDS_MAX = 3600.0
RATE = 100.0
"""Messages per second of each publisher."""
DEADLINE_S = 0.050
DEGRADED_S = 0.100

PEERS = ("p1", "p2", "p3", "p4", "p5")


class Link(msgspec.Struct, frozen=True):
    """Two peers and the delay between them, the same both ways. The second one dials."""

    first: str
    second: str
    delay_s: float

    @property
    def name(self) -> str:
        """As it is shown and told."""
        return f"{self.first}-{self.second}"

    def is_on(self, path: tuple[str, ...]) -> bool:
        """Whether a path passes it, in either direction."""
        hops = itertools.pairwise(path)
        return any({a, b} == {self.first, self.second} for a, b in hops)


class Flow(msgspec.Struct, frozen=True):
    """One topic from its publisher's peer to one subscriber's."""

    topic: str
    source: str
    destination: str

    @property
    def name(self) -> str:
        """As it is shown."""
        return f"{self.topic} to {self.destination}"


class Trouble(enum.StrEnum):
    """What can happen to a link."""

    DEGRADED = "degraded"
    DEAD = "dead"
    RESTORED = "restored"


class Step(msgspec.Struct, frozen=True):
    """Something that happens to a link, so many seconds after the flows began."""

    at_s: float
    trouble: Trouble
    link: Link


LINKS = (
    Link("p1", "p2", 0.020),
    Link("p1", "p3", 0.024),
    Link("p1", "p4", 0.040),
    Link("p1", "p5", 0.036),
    Link("p2", "p3", 0.014),
    Link("p2", "p4", 0.026),
    Link("p2", "p5", 0.012),
    Link("p3", "p4", 0.008),
    Link("p3", "p5", 0.016),
    Link("p4", "p5", 0.018),
)
"""Delays of the size of Harmony's evaluation. Each detour that is played is better than the next by more than
the 20 % that a path must gain, so that the same ones are taken in every run, and meets the deadline."""

FLOWS = (
    Flow("air/radar", "p2", "p1"),
    Flow("air/radar", "p2", "p5"),
    Flow("air/weather", "p3", "p1"),
    Flow("air/weather", "p3", "p4"),
    Flow("air/alerts", "p4", "p3"),
    Flow("air/alerts", "p4", "p5"),
)
"""Three publishers, six subscribers."""


def timeline(seconds: float) -> list[Step]:
    """What happens in a run of this length."""
    if not SECONDS_MIN <= seconds <= SECONDS_MAX:
        raise UsageError(f"--seconds {seconds:g}: must be from {SECONDS_MIN:g} to {SECONDS_MAX:g}")
    scale = seconds / SECONDS
    slow, dying = find_link("p2", "p5"), find_link("p1", "p3")
    return [
        Step(8.0 * scale, Trouble.DEGRADED, slow),
        Step(16.0 * scale, Trouble.DEAD, dying),
        Step(24.0 * scale, Trouble.RESTORED, slow),
        Step(24.0 * scale, Trouble.RESTORED, dying),
    ]


def find_link(a: str, b: str) -> Link:
    """The link between two peers."""
    return next(each for each in LINKS if {each.first, each.second} == {a, b})
