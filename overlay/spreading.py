"""Records through the mesh: made and signed here, checked, flooded on, compared when a link opens."""

from collections.abc import Iterable, Sequence

from anabranch.overlay.actions import Action, SendControl
from anabranch.overlay.codec import encode_control, encode_records, signed_part
from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.errors import DropReason
from anabranch.overlay.headers import EPOCH_MAX, Digest, Kind, Record, RecordKind, Want
from anabranch.overlay.identifiers import LinkId, is_peer_name
from anabranch.overlay.identity import Identity
from anabranch.overlay.links import Link, LinkTable
from anabranch.overlay.qos import Role
from anabranch.overlay.recordbook import RecordBook, RecordKey
from anabranch.security.signing import Signer, Verifier

ALL_KINDS = frozenset(int(kind) for kind in RecordKind)
CLIENT_KINDS = ALL_KINDS - {int(RecordKind.LINKS)}
"""What a light client is told: everything but the topology, which only routing needs."""
DIGEST_PART = 500
RECORDS_PART_BYTES = 256 * 1024


class Spreading:
    """Holds the record book; tells what to send to whom."""

    def __init__(
        self,
        identity: Identity,
        config: Config,
        links: LinkTable,
        counters: Counters,
        signer: Signer,
        verifier: Verifier,
    ) -> None:
        self.book = RecordBook(config.records_max, config.record_lifetime_s)
        self._identity = identity
        self._config = config
        self._links = links
        self._counters = counters
        self.signer = signer
        self.verifier = verifier
        self._sequence = 0
        self._named: dict[LinkId, dict[RecordKey, tuple[int, int]]] = {}

    def originate(self, kind: RecordKind, body: bytes, now: float) -> list[Action]:
        """Make a record about ourselves and send it to every neighbour."""
        self._sequence += 1
        me = self._identity
        record = Record(me.peer, me.epoch, int(kind), self._sequence, body, b"")
        record.signature = self.signer.sign(signed_part(record))
        self.book.put(record, now)
        return self._flood([record], None)

    def receive(
        self, records: Sequence[Record], link: Link, now: float, as_made: bytes | None = None
    ) -> tuple[list[Record], list[Action]]:
        """Take records from a neighbour: those that are new, and the actions that pass them on.

        `as_made`: the frame that they came in, if it may travel on as it is.
        """
        fresh = []
        for record in records:
            reason = self._refusal(record, link)
            if reason is None:
                self.book.put(record, now)
                fresh.append(record)
            elif reason is not DropReason.STALE:  # a record we have already is how flooding ends
                self._counters.drop(reason)
        if not fresh:
            return fresh, []
        frame = as_made if len(fresh) == len(records) else None
        return fresh, self._flood(fresh, link, frame)

    def holds(self, records: Iterable[Record]) -> bool:
        """Whether these came already: the very same ones, as `codec.decode_records` shares them."""
        get = self.book.get
        return all(get(record.origin, record.kind) is record for record in records)

    def claims_later_self(self, records: Iterable[Record]) -> int:
        """The latest epoch under our own name that these records carry beyond ours; 0 when none does."""
        me = self._identity
        own = [
            record.epoch
            for record in records
            if record.origin == me.peer
            and me.epoch < record.epoch < EPOCH_MAX
            and self.verifier.verify(me.peer, signed_part(record), record.signature)
        ]
        return max(own, default=0)

    def show_credential(self, link: Link, now: float) -> list[Action]:
        """First of all a new neighbour gets our credential and key as records: it passes records on in the
        order in which they came, and others shall not get one that they cannot check."""
        me = self._identity.peer
        return self._send(link, [(me, int(RecordKind.CREDENTIAL)), (me, int(RecordKind.EXCHANGE))], now)

    def opened(self, link: Link) -> list[Action]:
        """Tell a new neighbour what we hold."""
        self._named.pop(link.id, None)
        entries = self._digest_for(link)
        parts = [entries[at : at + DIGEST_PART] for at in range(0, len(entries), DIGEST_PART)] or [[]]
        return [
            SendControl(link.id, encode_control(Kind.DIGEST, Digest(part, part is parts[-1])))
            for part in parts
        ]

    def closed(self, link_id: LinkId) -> None:
        """A link is gone."""
        self._named.pop(link_id, None)

    def digest(self, link: Link, digest: Digest, now: float) -> list[Action]:
        """The neighbour told what it holds: ask for what is newer, send what it lacks."""
        named = self._named.setdefault(link.id, {})
        wanted = []
        for origin, kind, epoch, sequence in digest.entries[: self._config.records_max]:
            if len(named) < self._config.records_max:
                named[origin, kind] = (epoch, sequence)
            held = self.book.get(origin, kind)
            if held is None or (held.epoch, held.sequence) < (epoch, sequence):
                wanted.append((origin, kind))
        actions: list[Action] = []
        if wanted:
            actions.append(SendControl(link.id, encode_control(Kind.WANT, Want(wanted))))
        if digest.last:
            lacking = [
                (origin, kind)
                for origin, kind, epoch, sequence in self._digest_for(link)
                if named.get((origin, kind), (-1, -1)) < (epoch, sequence)
            ]
            self._named.pop(link.id, None)
            actions += self._send(link, lacking, now)
        return actions

    def want(self, link: Link, want: Want, now: float) -> list[Action]:
        """Send what a neighbour asked for."""
        allowed = {(origin, kind) for origin, kind, _, _ in self._digest_for(link)}
        return self._send(link, [key for key in dict.fromkeys(want.entries) if key in allowed], now)

    def _refusal(self, record: Record, link: Link) -> DropReason | None:
        if not is_peer_name(record.origin) or record.kind not in ALL_KINDS or record.age_ms < 0:
            return DropReason.MALFORMED
        if not 0 <= record.epoch < EPOCH_MAX:
            return DropReason.MALFORMED
        if len(record.body) > self._config.record_body_max_bytes:
            return DropReason.OVERSIZED
        if record.origin == self._identity.peer:
            return DropReason.STALE
        if link.is_client and record.origin != link.peer:
            return DropReason.CONFLICT  # a light client speaks for itself only
        if self._config.role is Role.CLIENT and record.kind not in CLIENT_KINDS:
            return DropReason.STALE
        reason = self.book.judge(record)
        if reason is not None:
            return reason
        if record.kind == RecordKind.CREDENTIAL and not self.verifier.learn(record.origin, record.body):
            return DropReason.UNTRUSTED
        covered = b"" if self.verifier.is_open else signed_part(record)
        if not self.verifier.verify(record.origin, covered, record.signature):
            return DropReason.SIGNATURE
        return None

    def _digest_for(self, link: Link) -> list[tuple[str, int, int, int]]:
        entries = self.book.digest(CLIENT_KINDS if link.is_client else ALL_KINDS)
        if self._config.role is Role.CLIENT:
            return [entry for entry in entries if entry[0] == self._identity.peer]
        return entries

    def _flood(self, records: list[Record], source: Link | None, frame: bytes | None = None) -> list[Action]:
        if self._config.role is Role.CLIENT and source is not None:
            return []
        targets = [link for link in self._links.by_peer.values() if link is not source]
        for_peers = for_clients = [frame] if frame is not None else _frames(records)
        if any(link.is_client for link in targets):
            told = [record for record in records if record.kind in CLIENT_KINDS]
            if len(told) < len(records):
                for_clients = _frames(told)
        return [
            SendControl(link.id, frame)
            for link in targets
            for frame in (for_clients if link.is_client else for_peers)
        ]

    def _send(self, link: Link, keys: list[RecordKey], now: float) -> list[Action]:
        keys = sorted(keys, key=_goes_later)
        records = [record for key in keys if (record := self.book.aged(key, now)) is not None]
        return [SendControl(link.id, frame) for frame in _frames(records)]


def _goes_later(key: RecordKey) -> int:
    """Credentials go first, then keys for seals: without them the receiver can't check the rest."""
    return 0 if key[1] == RecordKind.CREDENTIAL else 1 if key[1] == RecordKind.EXCHANGE else 2


def _frames(records: list[Record]) -> list[bytes]:
    """Records as control frames of bounded size."""
    frames = []
    part: list[Record] = []
    size = 0
    for record in records:
        part.append(record)
        size += len(record.body) + 128
        if size >= RECORDS_PART_BYTES:
            frames.append(encode_records(part))
            part, size = [], 0
    if part:
        frames.append(encode_records(part))
    return frames
