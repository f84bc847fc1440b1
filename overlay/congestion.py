"""Links that take less than is published over them: told back to the publishers concerned, who pause.

Soft state: a pause ends by itself, and is told again while the backlog lasts. Only publishers whose route
uses the congested link wait; what others publish passes.
"""

from collections.abc import Iterable

from anabranch.overlay.actions import Action, SendControl
from anabranch.overlay.codec import encode_control
from anabranch.overlay.errors import DropReason, PeerError
from anabranch.overlay.headers import PATH_MAX_PEERS, Congestion, Kind
from anabranch.overlay.identifiers import is_peer_name
from anabranch.overlay.links import Link, LinkTable
from anabranch.overlay.paths import Hop

PAUSE_LEAST_S = 0.001
PAUSE_MAX_S = 0.2
"""Longest pause one notice may ask for: a lying peer slows us no further."""
TELL_EVERY_S = 0.002
"""A flow that goes on hears of it again after this long."""
CONGESTED_MAX = 1024
"""Links remembered as congested, and flows remembered as told; the oldest goes."""


class Congestions:
    """What this peer was told about congested links, and what it told others."""

    def __init__(self, me: str, links: LinkTable) -> None:
        self._me = me
        self._links = links
        self._until: dict[Hop, float] = {}
        self._urgent_until: dict[Hop, float] = {}
        """The same for what has a deadline, which overtakes the rest: only its own kind holds it up."""
        self._told: dict[tuple[tuple[str, ...], str], float] = {}

    def met(
        self,
        link: Link,
        path: tuple[str, ...],
        there: str,
        backlog_s: float,
        now: float,
        urgent: bool = False,
    ) -> list[Action]:
        """A bundle that came this path met a backlog towards `there`: tell its publisher, not too often."""
        key = (path, there)
        told_at = self._told.pop(key, -1.0)
        if now - told_at < TELL_EVERY_S:
            self._told[key] = told_at
            return []
        if len(self._told) >= CONGESTED_MAX:
            del self._told[next(iter(self._told))]
        self._told[key] = now
        way = _without_loops(path)
        if way == path:
            back: Link | None = link
        elif len(way) > 1:
            back = self._links.by_peer.get(way[-2])
        else:
            self.note((self._me, there), backlog_s, now, urgent)
            return []
        if back is None:
            return []
        notice = Congestion(self._me, there, int(min(backlog_s, PAUSE_MAX_S) * 1e6), list(way[:-2]), urgent)
        return [SendControl(back.id, encode_control(Kind.CONGESTION, notice))]

    def notice(self, link: Link, notice: Congestion, now: float) -> list[Action]:
        """A peer downstream told us: pause if it was our bundle, else pass it back."""
        way = [*notice.back, self._me, link.peer]
        if len(way) > PATH_MAX_PEERS or len(set(way)) != len(way):
            raise PeerError(DropReason.MALFORMED, "way back of a congestion notice")
        if not all(is_peer_name(name) for name in (notice.here, notice.there, *notice.back)):
            raise PeerError(DropReason.MALFORMED, "peer name in a congestion notice")
        if notice.back:
            before = self._links.by_peer.get(notice.back[-1])
            if before is None:
                return []
            passed = Congestion(notice.here, notice.there, notice.pause_us, notice.back[:-1], notice.urgent)
            return [SendControl(before.id, encode_control(Kind.CONGESTION, passed))]
        urgent = notice.urgent or notice.here == notice.there
        self.note((notice.here, notice.there), notice.pause_us / 1e6, now, urgent)
        return []

    def note(self, hop: Hop, backlog_s: float, now: float, urgent: bool) -> None:
        """Remember that our own publications, or even the urgent ones, meet a backlog on this hop."""
        for known in (self._until, self._urgent_until) if urgent else (self._until,):
            known.pop(hop, None)
            if len(known) >= CONGESTED_MAX:
                del known[next(iter(known))]
            known[hop] = now + min(max(backlog_s, PAUSE_LEAST_S), PAUSE_MAX_S)

    def pause_until(self, hops: Iterable[Hop] | None, urgent: bool) -> float:
        """Until when a publisher whose route has these hops shall wait; 0 when none is congested.

        None stands for a light client, whose peer chooses the route: whatever it was told is on it.
        """
        until = self._urgent_until if urgent else self._until
        if hops is None:
            return max(until.values(), default=0.0)
        return max((until.get(hop, 0.0) for hop in hops), default=0.0)

    @property
    def any_known(self) -> bool:
        """Whether anything was told that may still hold."""
        return bool(self._until)

    def expire(self, now: float) -> None:
        """Forget what is over."""
        self._until = {hop: until for hop, until in self._until.items() if until > now}
        self._urgent_until = {hop: until for hop, until in self._urgent_until.items() if until > now}
        self._told = {key: at for key, at in self._told.items() if now - at < PAUSE_MAX_S}


def _without_loops(path: tuple[str, ...]) -> tuple[str, ...]:
    """The way that a bundle came, less the turns that a repair made: nobody is passed twice."""
    way: list[str] = []
    for peer in path:
        if peer in way:
            del way[way.index(peer) :]
        way.append(peer)
    return tuple(way)
