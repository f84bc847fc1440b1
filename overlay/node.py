"""The node: every input of a peer goes in here, every action comes out. Glue between the parts, no maths.

A shell calls an input or a command with `now`, then takes the actions and re-arms its timer from
`next_timeout()`. Nothing a neighbour sends makes an input raise.
"""

from collections.abc import Sequence

from anabranch.overlay.actions import Action
from anabranch.overlay.addresses import is_dialable
from anabranch.overlay.codec import Frame
from anabranch.overlay.commands import Commands
from anabranch.overlay.config import Config
from anabranch.overlay.control import Control
from anabranch.overlay.errors import DropReason, PeerError
from anabranch.overlay.headers import WIRE_VERSION, Kind
from anabranch.overlay.identifiers import LinkId, PeerId
from anabranch.overlay.identity import Identity, Rng
from anabranch.overlay.parts import Parts
from anabranch.overlay.qos import LinkState
from anabranch.security.entitlement import NoRights, Rights
from anabranch.security.signing import NullSigner, NullVerifier, Signer, Verifier

LAG_NOTICED_S = 0.1
"""A timer that fires this late means that our own loop stood still."""
_BUNDLE = int(Kind.BUNDLE)
_BEFORE_HELLO = (int(Kind.HELLO), int(Kind.BYE))


class Node(Commands):
    """One peer of the mesh, without sockets and without a clock."""

    def __init__(
        self,
        peer: PeerId,
        config: Config,
        *,
        epoch: int,
        rng: Rng,
        seeds: Sequence[str] = (),
        addresses: Sequence[str] = (),
        signer: Signer | None = None,
        verifier: Verifier | None = None,
        rights: Rights | None = None,
    ) -> None:
        name = str(peer)  # the wire codec takes plain text only
        self.identity = Identity(name, epoch, rng.randrange(2**63))
        parts = Parts(
            self.identity,
            config,
            rng,
            addresses,
            signer or NullSigner(),
            verifier or NullVerifier(),
            rights or NoRights(),
        )
        super().__init__(parts)
        self.counters = parts.counters
        self.sessions = parts.sessions
        self.links = parts.links
        self.topology = parts.topology
        self.interests = parts.interests
        self.matching = parts.matching
        self.routes = parts.routes
        self.book = parts.spreading.book
        self._timers = parts.timers
        self._delivering = parts.delivering
        self._streams = parts.delivering.streams
        self._control = Control(parts)
        self._seeds = tuple(seeds)

    @property
    def is_secured(self) -> bool:
        """Whether peers have to prove who they are."""
        return not self._parts.verifier.is_open

    @property
    def recording(self) -> bool:
        """Whether `Write` actions are made; switch off where nobody keeps them."""
        return self.sessions.recording

    @recording.setter
    def recording(self, wanted: bool) -> None:
        self.sessions.recording = wanted

    # Inputs

    def start(self, now: float) -> None:
        """Begin: announce ourselves, dial the seeds."""
        for address in self._seeds:
            self.sessions.dialling.add(address, True, now)
        self._actions += self._parts.telling.everything(self._parts.local.patterns(), now)
        self._duties.begin(now)
        self._after(now)

    def link_opened(self, link: LinkId, now: float, address: str | None = None, binding: bytes = b"") -> None:
        """A connection stands. `address` is the one we dialled; None when the neighbour dialled us.

        `binding`: what identifies this connection at both its ends and can't be had on another.
        """
        self._actions += self.sessions.opened(link, now, address, binding)
        self._after(now)

    def link_closed(self, link: LinkId, now: float) -> None:
        """A connection is gone."""
        self.sessions.closed(link, now, "connection lost")
        self._after(now)

    def link_backlog(self, link: LinkId, backlog_s: float) -> None:
        """What waits for a link will take this long; 0 when it keeps up again."""
        known = self.links.get(link)
        if known is not None:
            known.backlog_s = backlog_s

    def application_backlog(self, path: tuple[str, ...], backlog_s: float, now: float) -> None:
        """Our application will take this long for what already came over this path: tell the publisher."""
        if len(path) == 1:
            self._parts.congestion.note((self.peer, self.peer), backlog_s, now, True)
            return
        link = self.links.by_peer.get(path[-2])
        if link is not None:
            self._actions += self._parts.congestion.met(link, path, self.peer, backlog_s, now)

    def trust_changed(self, now: float) -> None:
        """Our own credential was renewed, or a revocation list came: tell it, and act on it at once."""
        self._actions += self._parts.telling.introduce(now)
        self._parts.telling.entitling.judge_again(self.identity.peer, self.counters)
        self._actions += self._duties.evict(now)
        self._after(now)

    def dial_failed(self, address: str, now: float) -> None:
        """A `Dial` did not succeed."""
        self.sessions.dialling.failed(address, now)
        self._after(now)

    def found(self, addresses: Sequence[str], now: float) -> None:
        """Somebody was discovered at these addresses (by beacon): dial the first usable one."""
        for address in addresses:
            if is_dialable(address):
                self.sessions.dialling.add(address, False, now)
                break
        self._after(now)

    def receive(self, link_id: LinkId, frames: Sequence[Frame], now: float) -> None:
        """A message arrived on a link. Bad ones are counted and dropped."""
        link = self.links.get(link_id)
        try:
            if link is None:
                raise PeerError(DropReason.NO_SESSION)
            head = frames[0] if frames else b""
            if len(head) < 2:
                raise PeerError(DropReason.MALFORMED)
            if head[0] != WIRE_VERSION:
                raise PeerError(DropReason.VERSION)
            kind = head[1]
            if link.peer:
                link.heard_at = now
                if link.state is LinkState.SUSPECT:
                    self.sessions.heard(link)
            elif kind not in _BEFORE_HELLO:
                self._actions += self._control.ask_who(link, kind)
                raise PeerError(DropReason.NO_SESSION)
            if kind == _BUNDLE:
                self._actions += self._delivering.receive(link, frames, now)
                if not self._streams.is_holding and not self.sessions.has_changes:
                    return
            else:
                self._actions += self._control.receive(link, kind, frames, now)
                if not self._control.has_news and not self.sessions.has_changes:
                    return
        except PeerError as error:
            self.counters.drop(error.reason)
        self._after(now)

    def handle_timeout(self, now: float) -> None:
        """Time has passed; call when `next_timeout()` is reached, after draining what arrived."""
        due = self._timers.pop_due(now)
        if due and now - due[0][0] > LAG_NOTICED_S:
            self.sessions.forgive(now - due[0][0], now)
        for at, (name, number) in due:
            self._actions += self._duties.fire(name, number, at, now)
        self._after(now)

    def judges_silence(self, now: float) -> bool:
        """Whether what is due now depends on what has not come: what has arrived must be received before."""
        return any(name != "ack" for name, _ in self._timers.are_due(now))

    def excuse_silence(self, now: float) -> None:
        """We were not listening until now: nobody's silence counts."""
        self.sessions.forgive(now, now)

    def next_timeout(self) -> float | None:
        """When `handle_timeout` has something to do."""
        return self._timers.next()

    def take_actions(self) -> list[Action]:
        """What the shell has to do now, in this order."""
        if self._replies.reporting.is_pending:
            self._actions += self._replies.flush()
        actions, self._actions = self._actions, []
        return actions
