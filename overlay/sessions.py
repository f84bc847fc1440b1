"""Links from hello to farewell: who is on the other end, whether it is alive, whom to dial.

Returns actions; what became of a link is told by `take_changes()`, on which the node acts.
"""

from collections.abc import Callable

import msgspec

from anabranch.overlay.actions import Action, CloseLink, Dial, SendControl, Write
from anabranch.overlay.clocks import MeshClock
from anabranch.overlay.codec import encode_control, encode_echo, encode_probe, hello_part
from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.dialling import Dialling
from anabranch.overlay.errors import DropReason, PeerError
from anabranch.overlay.estimators import Estimate
from anabranch.overlay.headers import EPOCH_MAX, Bye, Hello, Kind
from anabranch.overlay.identifiers import LinkId, is_peer_name
from anabranch.overlay.identity import Identity, Rng
from anabranch.overlay.links import Link, LinkTable
from anabranch.overlay.qos import LinkState, Role
from anabranch.overlay.queues import LinkQueue
from anabranch.overlay.records import ProbeRecord
from anabranch.overlay.timers import Timers
from anabranch.security.signing import Signer, Verifier

SILENCE_SLACK_S = 0.1
"""Silence past the probe interval and a round trip by this much makes probes faster."""

JUST_AFTER_S = 0.001

OWN_PART = 8
"""This part of all links is for those that this peer dials: whom it chose itself."""

TimerKey = tuple[str, int]


class LinkChange(msgspec.Struct, frozen=True):
    """A link with a completed hello changed its state."""

    link: Link
    state: LinkState
    cause: str


class Sessions:
    """The links of this node."""

    def __init__(
        self,
        identity: Identity,
        config: Config,
        rng: Rng,
        counters: Counters,
        timers: Timers[TimerKey],
        signer: Signer,
        verifier: Verifier,
    ) -> None:
        self.links = LinkTable()
        self._signer = signer
        self._verifier = verifier
        self.dialling = Dialling(rng, config.links_max)
        self.recording = True
        self._measured: dict[Link, None] = {}
        self._identity = identity
        self._clock = MeshClock(identity.epoch)
        self._config = config
        self._counters = counters
        self._timers = timers
        self._changes: list[LinkChange] = []
        self._history: dict[str, tuple[Estimate, float]] = {}
        self.quiet: frozenset[str] = frozenset()
        """Neighbours that are silent for longer than a probe and its echo take."""
        self._fell_quiet: list[Link] = []
        self.on_link: Callable[[Link], None] = lambda _: None
        """Told of each new link."""

    @property
    def has_changes(self) -> bool:
        """Whether `take_changes` has something."""
        return bool(self._changes)

    def take_changes(self) -> list[LinkChange]:
        """What happened to links since the last call."""
        changes, self._changes = self._changes, []
        return changes

    @property
    def has_measured(self) -> bool:
        """Whether `take_measured` has something."""
        return bool(self._measured)

    def take_measured(self) -> list[Link]:
        """Links of which an estimate changed since the last call."""
        measured, self._measured = self._measured, {}
        return list(measured)

    # The shell's reports

    def opened(self, link_id: LinkId, now: float, address: str | None, binding: bytes = b"") -> list[Action]:
        """A connection stands; the side that dialled speaks first."""
        if address is not None:
            self.dialling.opened(address)
        if self.links.opening_count() >= self._config.links_opening_max:
            self._counters.drop(DropReason.TABLE_FULL)
            return self._close(
                Link(link_id, address, now, Estimate(1.0), LinkQueue(1)), "too many connections", now
            )
        queue = LinkQueue(self._config.link_queue_max_bytes, retains=self._config.ack_delay_s > 0)
        estimate = Estimate(self._config.ewma_weight, step_samples=self._config.step_probes)
        link = Link(link_id, address, now, estimate, queue)
        link.binding = binding
        self.links.add(link)
        self.on_link(link)
        self._timers.set(("hello", link_id), now + self._config.hello_timeout_s)
        return [self._hello(link)] if address is not None else []

    def queue(self, link_id: LinkId) -> LinkQueue | None:
        """Where the shell finds what it shall send over a link; None when the link was refused."""
        link = self.links.get(link_id)
        return link.queue if link is not None else None

    def closed(self, link_id: LinkId, now: float, cause: str) -> None:
        """A connection is gone."""
        link = self.links.get(link_id)
        if link is not None:
            self._remove(link, now, cause)

    # Messages

    def hello(self, link: Link, hello: Hello, now: float) -> list[Action]:
        """The neighbour says who it is."""
        if link.peer:
            return []
        if not is_peer_name(hello.peer) or hello.role not in tuple(Role) or not 0 <= hello.epoch < EPOCH_MAX:
            raise PeerError(DropReason.MALFORMED, "hello")
        if not self._is_proven(link, hello):
            self._counters.drop(DropReason.UNTRUSTED)
            return self._close(link, "untrusted", now)
        if hello.peer == self._identity.peer:
            if hello.instance == self._identity.instance and link.address is not None:
                self.dialling.forget(link.address)
            elif hello.instance != self._identity.instance:
                self._counters.drop(DropReason.CONFLICT)
            return self._close(link, "name taken", now)
        existing = self.links.by_peer.get(hello.peer)
        if existing is None and not self._has_room(link):
            self._counters.drop(DropReason.TABLE_FULL)
            return self._close(link, "no room", now)
        actions: list[Action] = []
        if existing is not None:
            if not self._replaces(existing, link, hello):
                if hello.epoch != existing.epoch:
                    self._counters.drop(DropReason.CONFLICT)
                if link.address is not None:
                    self.dialling.confirmed(link.address, hello.peer)
                return self._close(link, "duplicate link", now)
            cause = "restarted" if hello.epoch > existing.epoch else "replaced"
            actions += self._close(existing, cause, now)
        if link.address is None:
            actions.append(self._hello(link))
        else:
            self.dialling.confirmed(link.address, hello.peer)
        self.links.bind(link, hello.peer, hello.epoch, Role(hello.role), now)
        self._recall(link, now)
        self._timers.cancel(("hello", link.id))
        self._changes.append(LinkChange(link, LinkState.UP, "hello"))
        return actions + self.probe(link, now, now)

    def heard(self, link: Link) -> None:
        """A suspect link gave a life sign."""
        link.state = LinkState.UP
        self._changes.append(LinkChange(link, LinkState.UP, "heard"))

    def echo_to(self, link: Link, sequence: int, now: float) -> list[Action]:
        """Answer a probe, and tell what our clock shows."""
        return [SendControl(link.id, encode_echo(sequence, self._clock_us(now), 0))]

    def echoed(self, link: Link, sequence: int, clock_us: int, held_us: int, now: float) -> list[Action]:
        """A probe came back."""
        sent = link.end_probe(sequence)
        if sent is None:
            return []
        round_trip = max(0.0, now - sent - held_us / 1e6)
        link.estimate.add_round_trip(round_trip)
        midway = self._clock.read(now) - held_us / 1e6 - round_trip / 2
        link.estimate.add_offset(clock_us / 1e6 - midway, round_trip, self._clock.is_settled)
        self._measured[link] = None
        self._adjust_clock(now)
        return self._probe_record(link, sequence, int(round_trip * 1e6), 0, now)

    def _clock_us(self, now: float) -> int:
        return int(self._clock.read(now) * 1e6) & (2**64 - 1)

    def _adjust_clock(self, now: float) -> None:
        if not self._clock.is_due(now):
            return
        estimates = [link.estimate for link in self.links.by_peer.values() if not link.is_client]
        step = self._clock.adjust([each.offset_s for each in estimates if each.offset_s is not None], now)
        if step:
            for link in self.links.by_peer.values():
                link.estimate.clock_moved(step, self._clock.is_settled)
                self._measured[link] = None

    def bye(self, link: Link, now: float) -> list[Action]:
        """The neighbour closes this link, or no longer knows it."""
        self._remove(link, now, "closed by neighbour")
        return [CloseLink(link.id, "closed by neighbour")]

    # Time

    def probe(self, link: Link, due: float, now: float) -> list[Action]:
        """Judge the silence of a link, and probe it."""
        config = self._config
        suspect_after, down_after = link.silence_limits(config)
        silence = now - link.heard_at
        actions: list[Action] = []
        lost = link.overdue_probes(now, suspect_after)
        if silence > down_after:
            return self._close(link, "silent", now)
        if silence > suspect_after and link.state is LinkState.UP:
            link.state = LinkState.SUSPECT
            self._changes.append(LinkChange(link, LinkState.SUSPECT, "silent"))
        if link.estimate.add_interval(link.state is LinkState.UP) or lost:
            self._measured[link] = None
        sequence, too_old = link.start_probe(now)
        lost += too_old
        for missing, sent in lost:
            link.estimate.add_loss()
            actions += self._probe_record(link, missing, None, int((now - sent) * 1e6), now)
        actions.append(SendControl(link.id, encode_probe(sequence, self._clock_us(now))))
        patience = config.probe_interval_s + 2 * link.estimate.delay_s + SILENCE_SLACK_S
        if silence > patience or (link.is_quiet and link.heard_at <= link.quiet_at):
            if not link.is_quiet:
                self._set_quiet(link, now)
            pause = config.probe_fast_interval_s
        else:
            if link.is_quiet:
                self._set_heard(link)
            pause = config.probe_interval_s
        again = max(due + pause, now + pause / 2)
        # The next verdict on a silence falls when it is due, not with the next probe.
        for limit in (patience, suspect_after, down_after):
            if silence < limit:
                again = min(again, link.heard_at + limit + JUST_AFTER_S)
        self._timers.set(("probe", link.id), again)
        return actions

    def fall_quiet(self, link: Link, now: float) -> None:
        """Bundles are under way on a link for too long, and nothing is heard from it."""
        if not link.is_quiet:
            self._set_quiet(link, now)
            self._timers.set_earliest(("probe", link.id), now)

    def take_quiet(self) -> list[Link]:
        """Links that fell quiet since the last call."""
        fell, self._fell_quiet = self._fell_quiet, []
        return fell

    def hello_overdue(self, link_id: LinkId, now: float) -> list[Action]:
        """No hello in time."""
        link = self.links.get(link_id)
        if link is None or link.peer:
            return []
        self._counters.drop(DropReason.NO_SESSION)
        return self._close(link, "no hello", now)

    def evict(self, now: float) -> list[Action]:
        """Close the links of peers whose credential ended."""
        actions: list[Action] = []
        for link in list(self.links.by_peer.values()):
            if not self._verifier.is_trusted(link.peer):
                self._counters.add("evicted")
                actions += self._close(link, "untrusted", now)
        return actions

    def forgive(self, lag_s: float, now: float) -> None:
        """Our own loop was late by this much: silence in that time proves nothing."""
        for link in self.links:
            link.heard_at = min(now, link.heard_at + lag_s)

    def dial_due(self, now: float) -> list[Action]:
        """Dial what is due."""
        only_one = self._config.role is Role.CLIENT
        neighbours: dict[str, object] = dict(self.links.by_peer)
        return [Dial(address) for address in self.dialling.due(now, neighbours, only_one)]

    def leave(self, now: float) -> list[Action]:
        """Say farewell on every link, and dial nobody again."""
        actions: list[Action] = []
        for link in list(self.links):
            actions += self._close(link, "leaving", now)
        self.dialling.forget_all()
        return actions

    # Inside

    def _set_quiet(self, link: Link, now: float) -> None:
        link.is_quiet = True
        link.quiet_at = now
        self.quiet |= {link.peer}
        self._fell_quiet.append(link)
        self._measured[link] = None

    def _set_heard(self, link: Link) -> None:
        link.is_quiet = False
        self.quiet -= {link.peer}
        self._measured[link] = None

    def _hello(self, link: Link) -> SendControl:
        me = self._identity
        hello = Hello(me.peer, me.epoch, self._config.role.value, me.instance, self._signer.credential)
        hello.proof = self._signer.sign(hello_part(hello, link.binding, link.address is not None))
        return SendControl(link.id, encode_control(Kind.HELLO, hello))

    def _is_proven(self, link: Link, hello: Hello) -> bool:
        """Whether the neighbour is who it says, at the other end of this very connection."""
        covered = hello_part(hello, link.binding, link.address is None)
        if not self._verifier.learn(hello.peer, hello.credential):
            return False
        is_proven = self._verifier.verify(hello.peer, covered, hello.proof)
        if not is_proven:
            self._verifier.refuse(hello.peer, "a hello that its holder did not sign for this connection")
        return is_proven

    def _has_room(self, link: Link) -> bool:
        """Whether one more neighbour is taken; who dials us cannot have the places of those whom we dial."""
        limit = self._config.links_max
        if len(self.links.by_peer) >= limit:
            return False
        if link.address is not None:
            return True
        accepted = sum(each.address is None for each in self.links.by_peer.values())
        return accepted < limit - limit // OWN_PART

    def _replaces(self, existing: Link, link: Link, hello: Hello) -> bool:
        if hello.epoch != existing.epoch:
            return hello.epoch > existing.epoch
        if (existing.address is None) == (link.address is None):
            return True  # the same side dialled again: the older connection is gone there
        if link.address is None and existing.state is LinkState.UP:
            return False  # both dialled, one after the other: what stands at both ends stays
        # Both sides dialled: the link dialled by the peer with the smaller name stays, at both ends.
        dialled_by_us = link.address is not None
        return dialled_by_us == (self._identity.peer < hello.peer)

    def _close(self, link: Link, reason: str, now: float) -> list[Action]:
        self._remove(link, now, reason)
        bye = SendControl(link.id, encode_control(Kind.BYE, Bye(reason)))
        return [bye, CloseLink(link.id, reason)]

    def _remove(self, link: Link, now: float, cause: str) -> None:
        was_known = bool(link.peer)
        self.links.remove(link.id)
        if link.peer not in self.links.by_peer:
            self.quiet -= {link.peer}
        for name in ("probe", "hello", "ack", "watch"):
            self._timers.cancel((name, link.id))
        if link.address is not None:
            self.dialling.failed(link.address, now)
        if was_known:
            self._remember(link, now)
            self._changes.append(LinkChange(link, LinkState.DOWN, cause))

    def _remember(self, link: Link, now: float) -> None:
        self._history.pop(link.peer, None)
        if len(self._history) >= self._config.links_max:
            del self._history[next(iter(self._history))]
        self._history[link.peer] = (link.estimate, now)

    def _recall(self, link: Link, now: float) -> None:
        known = self._history.pop(link.peer, None)
        if known is not None:
            link.estimate, down_at = known
            missed = min(1000, int((now - down_at) / self._config.probe_interval_s))
            link.estimate.availability *= (1 - link.estimate.weight) ** missed

    def _probe_record(
        self, link: Link, sequence: int, rtt_us: int | None, waited_us: int, now: float
    ) -> list[Action]:
        if not self.recording:
            return []
        estimate = link.estimate
        record = ProbeRecord(
            ts=int(now * 1e6),
            peer=self._identity.peer,
            epoch=self._identity.epoch,
            neighbour=link.peer,
            seq=sequence,
            rtt_us=rtt_us,
            delay_us=int(estimate.delay_s * 1e6),
            jitter_us=int(estimate.jitter_s * 1e6),
            loss=round(estimate.loss, 6),
            availability=round(estimate.availability, 6),
            connection=link.id,
            waited_us=waited_us,
        )
        return [Write(record)]
