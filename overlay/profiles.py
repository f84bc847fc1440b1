"""What was learned about links over a longer time: availabilities, and which links fail together.

Made by the analysis of logs, loaded by peers. Decides nothing; `choosing` counts with it.
"""

from itertools import pairwise
from math import isfinite

import msgspec

from anabranch.overlay.disjoint import Risks
from anabranch.overlay.errors import UsageError
from anabranch.overlay.identifiers import is_peer_name
from anabranch.overlay.paths import Hop, Path, link_of
from anabranch.security.signing import Signer

PROFILE_LINKS_MAX = 1_000_000
PROFILE_VERSION = 1


class LinkShare(msgspec.Struct, frozen=True):
    """For which share of the time a link worked."""

    between: Hop
    availability: float
    observed_s: float = 0.0
    """For how long it was watched."""


class FateGroup(msgspec.Struct, frozen=True):
    """Links that fail together: they share a cable, a provider, a power supply."""

    links: list[Hop]
    availability: float
    """For which share of the time what they share worked."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A whole profile. Links that it does not name are judged by what is measured now, alone."""

    version: int = PROFILE_VERSION
    links: list[LinkShare] = []
    groups: list[FateGroup] = []
    origin: str = ""
    """Who signed it."""
    credential: bytes = b""
    """What others need to check the signature."""
    signature: bytes = b""

    def __post_init__(self) -> None:
        if self.version != PROFILE_VERSION:
            raise UsageError(f"profile: version {self.version}: this peer knows version {PROFILE_VERSION}")
        named = sum(len(group.links) for group in self.groups)
        if len(self.links) + named > PROFILE_LINKS_MAX:
            raise UsageError(
                f"profile: more than {PROFILE_LINKS_MAX:,} links: leave out what peers don't use"
            )
        for ends in (*(link.between for link in self.links), *(e for g in self.groups for e in g.links)):
            if ends[0] == ends[1] or not all(is_peer_name(end) for end in ends):
                raise UsageError(f"profile: link {list(ends)}: expected the names of two peers")
        for share in (*(link.availability for link in self.links), *(g.availability for g in self.groups)):
            if not isfinite(share) or not 0 <= share <= 1:
                raise UsageError(f"profile: availability {share}: expected a share from 0 to 1")

    def signed(self, origin: str, signer: Signer) -> "Profile":
        """The same, signed by a peer of a secured mesh."""
        bare = msgspec.structs.replace(self, origin=origin, signature=b"")
        signature = signer.sign(bare.signed_bytes())
        return msgspec.structs.replace(bare, credential=signer.credential, signature=signature)

    def signed_bytes(self) -> bytes:
        """What a signature covers."""
        bare = msgspec.structs.replace(self, signature=b"", credential=b"")
        return b"anabranch profile 1\0" + msgspec.json.encode(bare, order="deterministic")


class Beliefs:
    """A profile, looked up by link. An empty one believes nothing and costs nothing."""

    def __init__(self, profile: Profile | None = None) -> None:
        self.risks: Risks = {}
        """By link (names in order): the causes of failure that it shares with others."""
        self._alone: dict[Hop, float] = {}
        self._groups: list[frozenset[Hop]] = []
        if profile is None:
            return
        shared: dict[Hop, float] = {}
        for number, group in enumerate(profile.groups):
            links = frozenset(link_of(*ends) for ends in group.links)
            self._groups.append(links)
            for link in sorted(links):
                self.risks[link] = (*self.risks.get(link, ()), (("", f"group {number}"), group.availability))
                shared[link] = shared.get(link, 1.0) * group.availability
        for link_share in profile.links:
            link = link_of(*link_share.between)
            common = shared.get(link, 1.0)
            self._alone[link] = min(1.0, link_share.availability / common) if common else 1.0

    def alone(self, here: str, there: str) -> float | None:
        """For which share of the time a link works as far as nothing that it shares is to blame."""
        return self._alone.get(link_of(here, there))

    def mates(self, path: Path) -> frozenset[Hop]:
        """Every link (names in order) that shares its fate with one of this path."""
        if not self._groups:
            return frozenset()
        links = {link_of(*hop) for hop in pairwise(path)}
        return frozenset(link for group in self._groups if group & links for link in group)

    def share_fate(self, one: Path, other: Path) -> bool:
        """Whether two paths may fail of one cause."""
        return not self.mates(one).isdisjoint(link_of(*hop) for hop in pairwise(other))

    def suspects(self) -> frozenset[Hop]:
        """Every link (names in order) of any group."""
        return frozenset(link for group in self._groups for link in group)
