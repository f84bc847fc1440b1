"""Every message that is no bundle: what it asks of this node, as actions. Called by the node."""

from collections.abc import Callable, Sequence

from anabranch.overlay import codec, describing
from anabranch.overlay.actions import Action, Reported, SendControl, SubscribersChanged
from anabranch.overlay.codec import Frame, encode_control
from anabranch.overlay.errors import DropReason, PeerError
from anabranch.overlay.headers import (
    Congestion,
    Digest,
    Hello,
    Inspect,
    Kind,
    Question,
    Record,
    RecordKind,
    Report,
    Want,
)
from anabranch.overlay.links import Link
from anabranch.overlay.parts import Parts

RECLAIM_PAUSE_S = 1.0
"""Least time between two attempts to outbid a later record under our own name."""


class Control:
    """Reads control messages; PeerError for what breaks the protocol."""

    def __init__(self, parts: Parts) -> None:
        self.has_news = True
        """Whether the last message was more than a life sign: most leave nothing to conclude."""
        self._parts = parts
        self._by_kind: dict[int, Callable[[Link, Frame, float], list[Action]]] = {
            Kind.PROBE: self._probe,
            Kind.ECHO: self._echo,
            Kind.ACK: self._ack,
            Kind.BYE: self._farewell,
            Kind.WHO: self._farewell,
            Kind.RECORDS: self._records,
        }
        self._by_struct: dict[type, Callable[..., list[Action]]] = {
            Hello: parts.sessions.hello,
            Digest: parts.spreading.digest,
            Want: parts.spreading.want,
            Congestion: self._congestion,
            Inspect: self._inspect,
            Report: self._report,
            Question: parts.discovery.question,
        }

    def receive(self, link: Link, kind: int, frames: Sequence[Frame], now: float) -> list[Action]:
        """Act on a message whose kind byte was read already."""
        if len(frames) != 1:
            raise PeerError(DropReason.MALFORMED, "control of several frames")
        self.has_news = True
        handle = self._by_kind.get(kind)
        if handle is not None:
            return handle(link, frames[0], now)
        message = codec.decode_control(kind, frames[0])
        handle_struct = self._by_struct.get(type(message))
        return handle_struct(link, message, now) if handle_struct is not None else []

    def ask_who(self, link: Link, kind: int) -> list[Action]:
        """The neighbour speaks before its hello: it may know a link of our former self. Once per link."""
        if kind == Kind.WHO or link.asked_who:  # an answer to noise must not become a flood
            return []
        link.asked_who = True
        return [SendControl(link.id, encode_control(Kind.WHO))]

    def _probe(self, link: Link, frame: Frame, now: float) -> list[Action]:
        sequence, _ = codec.decode_probe(frame)
        self.has_news = False
        return self._parts.sessions.echo_to(link, sequence, now)

    def _echo(self, link: Link, frame: Frame, now: float) -> list[Action]:
        sequence, clock_us, held_us = codec.decode_echo(frame)
        return self._parts.sessions.echoed(link, sequence, clock_us, held_us, now)

    def _ack(self, link: Link, frame: Frame, now: float) -> list[Action]:
        arrived_to, bits = codec.decode_ack(frame)
        return self._parts.hops.acknowledged(link, arrived_to, bits, now)

    def _farewell(self, link: Link, frame: Frame, now: float) -> list[Action]:
        del frame
        return self._parts.sessions.bye(link, now)

    def _records(self, link: Link, frame: Frame, now: float) -> list[Action]:
        parts = self._parts
        records, as_made = codec.decode_records(frame)
        if parts.spreading.holds(records):
            self.has_news = False
            return []
        actions = self._reclaim_name(records, now)
        fresh, flooded = parts.spreading.receive(records, link, now, as_made)
        actions += flooded
        applied = parts.telling.apply(fresh, parts.counters)
        for record in fresh:
            if record.kind == RecordKind.ROLES:
                addresses = parts.telling.addresses_of.get(record.origin, [])
                parts.sessions.dialling.belongs(addresses, record.origin)
        if applied:
            actions.append(SubscribersChanged())
        if parts.telling.has_revoked:
            parts.telling.has_revoked = False
            actions += parts.telling.introduce(now)
            parts.telling.entitling.judge_again(parts.identity.peer, parts.counters)
            parts.timers.set(("expire", 0), now)
        return actions

    def _reclaim_name(self, records: Sequence[Record], now: float) -> list[Action]:
        parts = self._parts
        later = parts.spreading.claims_later_self(records)
        if not later or now - parts.telling.reclaimed_at < RECLAIM_PAUSE_S:
            return []
        parts.counters.drop(DropReason.CONFLICT)
        parts.identity.epoch = later + 1
        parts.routes.forget()
        parts.telling.reclaimed_at = now
        return parts.telling.everything(parts.local.patterns(), now)

    def _congestion(self, link: Link, message: Congestion, now: float) -> list[Action]:
        self._parts.counters.add("congestion_notices")
        return self._parts.congestion.notice(link, message, now)

    def _inspect(self, link: Link, message: Inspect, now: float) -> list[Action]:
        report = Report(message.token, describing.document(describing.report(self._parts, now)))
        return [SendControl(link.id, encode_control(Kind.REPORT, report))]

    def _report(self, link: Link, message: Report, now: float) -> list[Action]:
        del now
        return [Reported(link.id, message.token, message.document)]
