"""One request of our own: sites asked, replies kept, the result. Accounting only; `harvests` acts on it."""

import msgspec

from anabranch.overlay.actions import Harvested, HarvestOver, Missing, Reply
from anabranch.overlay.codec import decode_value
from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.coverage import Coverage, Part, state_of
from anabranch.overlay.errors import PeerError
from anabranch.overlay.identity import Identity
from anabranch.overlay.merging import Merge, merge_all
from anabranch.overlay.paths import Path
from anabranch.overlay.records import ReplyRecord
from anabranch.overlay.replywire import Audience, Merged, Report, Request, bits, mask_of
from anabranch.overlay.vouching import Entry

CHECK_MAX_S = 30.0


class Poll(msgspec.Struct):
    """A snapshot under way."""

    token: int
    due: float
    waiting: dict[str, None]
    parts: list[Part] = []
    outstanding: int = 0


class Harvest:
    """What is known of one request."""

    def __init__(
        self, request: Request, audience: Audience, merge: Merge | None, now: float, tau_s: float
    ) -> None:
        self.request = request
        self.number = request.number
        self.merge = merge
        self.sites = audience.names
        self.index = audience.places
        self.mask_of = audience.mask_of
        self.all = (1 << len(self.sites)) - 1
        self.paths: dict[str, Path] = {}
        """The way that the request took to each site, as planned."""
        self.coverage = Coverage()
        """Sites that have said all."""
        self.awaited: dict[str, int] = {}
        """By next peer, the sites that it is to bring."""
        self.missing: dict[int, Missing] = {}
        self.trouble: dict[int, tuple[str, str]] = {}
        """(where, why) of the last failure on the way of a site."""
        self.unreached_since: dict[int, float] = {}
        self.again: dict[int, float] = {}
        """When a site is to be asked again."""
        self.asked: dict[int, tuple[float, int]] = {}
        """When it was asked again last, and how often."""
        self.expires_at = now + request.within_us / 1e6
        self.tau_s = tau_s
        self.heard_at = now
        self.checked_at = now
        self.checks = 0
        self.silent_at: float | None = None
        """When next peers are asked whether they are at it."""
        self.polls: list[Poll] = []
        self.held_bytes = 0
        """Of what came, repeated replies included."""
        self.unreadable = 0
        """Sites whose reply cannot be decoded: missing for good, unless a merged part brings them."""
        self._kept: dict[int, dict[int, bool]] = {}
        """By site, which of its subscribers were heard so far; False for one that declined."""
        self._arrived: list[tuple[int, int, object]] = []
        self._ends: dict[int, int] = {}

    @property
    def open_mask(self) -> int:
        """Sites that are still to come."""
        mask = self.all & ~self.coverage.mask
        for site in self.missing:
            mask &= ~(1 << site)
        return mask

    def is_new(self, site: int, subscriber: int) -> bool:
        """Whether a reply has not been counted yet."""
        return not self.coverage.mask >> site & 1 and subscriber not in self._kept.get(site, ())

    def take_entry(self, entry: Entry, counters: Counters) -> Reply | None:
        """A single reply came, or a subscriber declined; None when there is nothing to hand on."""
        site, subscriber, answered, raw, _ = entry
        if not 0 <= site < len(self.sites) or not self.is_new(site, subscriber):
            counters.add("replies_repeated")
            return None
        reply = None
        if answered:
            try:
                value = decode_value(memoryview(raw))
            except PeerError as error:
                counters.drop(error.reason)
                self.refuse(site)
                return None
            self._arrived.append((site, subscriber, value))
            reply = Reply(self.sites[site], subscriber, value)
        self._kept.setdefault(site, {})[subscriber] = answered
        self._end_if_full(site)
        return reply

    def refuse(self, site: int) -> None:
        """What a site replied cannot be read: it is missing, whatever else it says."""
        self.unreadable |= 1 << site
        self.again.pop(site, None)
        self.missing[site] = self.where(site, "its reply cannot be read")

    def lack_room(self, report: Report) -> None:
        """What it brings cannot be kept: its sites are missing."""
        refused = 0
        for site, *_ in report.entries:
            refused |= 1 << site if 0 <= site < len(self.sites) else 0
        for merged in report.merged:
            refused |= mask_of(merged.mask)
        for site in bits(refused & self.open_mask):
            self.missing[site] = self.where(site, "no room for its replies")

    def part(self, merged: Merged) -> Part:
        """Merged replies as they count here; PeerError when their state cannot be decoded."""
        mask = mask_of(merged.mask) & self.all
        return Part(mask, merged.answered, merged.declined, decode_value(memoryview(merged.state)))

    def end(self, site: int, subscribers: int) -> None:
        """A site has said all; its replies may still be on the way."""
        self._ends[site] = subscribers
        self._end_if_full(site)

    def take_merged(self, part: Part) -> bool:
        """Merged replies of some sites; False when some of them are covered already."""
        if not self.coverage.offer(part):
            return False
        mask = part.mask
        self.unreadable &= ~mask
        for site in bits(mask):
            self.missing.pop(site, None)
            self._kept.pop(site, None)
        if self._arrived:
            self._arrived = [entry for entry in self._arrived if not mask >> entry[0] & 1]
        return True

    def settle(self, mask: int) -> None:
        """No next peer is to bring these any more."""
        for peer, waiting in self.awaited.items():
            if waiting & mask:
                self.awaited[peer] = waiting & ~mask

    def where(self, site: int, why: str) -> Missing:
        """Where and why a site is missing."""
        place, cause = self.trouble.get(site, ("", ""))
        name = self.sites[site]
        if not place:
            path = self.paths.get(name, ())
            place = path[-2] if len(path) > 1 else self.request.origin
            place = f"{place}>{name}"
        return Missing(name, place, f"{why} ({cause})" if cause and cause != why else why)

    def due(self, config: Config) -> float:
        """When it is to be looked at."""
        times = [self.expires_at, *self.again.values()]
        times += [
            since + config.reply_missing_after_s
            for site, since in self.unreached_since.items()
            if site not in self.missing and not self.coverage.mask >> site & 1
        ]
        if self.tau_s:
            times.append(self.heard_at + self.tau_s)
        if self.request.protocol.is_repaired:
            pause_s = min(config.reply_check_s * 2**self.checks, CHECK_MAX_S)
            self.silent_at = max(self.heard_at + config.reply_check_s, self.checked_at + pause_s)
            times.append(self.silent_at)
        return min(times)

    # The result

    def result(self) -> Harvested:
        """What it amounts to now."""
        answered, declined = self.coverage.answered, self.coverage.declined
        for kept in self._kept.values():
            here = sum(kept.values())
            answered += here
            declined += len(kept) - here
        value, error = self._value(self.coverage.parts)
        return Harvested(
            value,
            complete=not self.all & ~self.coverage.mask,
            asked=self.sites,
            answered=answered,
            declined=declined,
            missing=tuple(self.missing[site] for site in sorted(self.missing)),
            outstanding=(self.all & ~self.coverage.mask).bit_count(),
            error=error,
        )

    def over(self, result: Harvested) -> HarvestOver:
        """Tell the application that it has ended so."""
        request = self.request
        return HarvestOver(self.number, result, request.topic, request.protocol, request.merge)

    def poll_answered(self, report: Report, sender: str) -> None:
        """A next peer answered a poll."""
        for poll in self.polls:
            if poll.token == report.poll and sender in poll.waiting:
                del poll.waiting[sender]
                poll.outstanding += max(0, report.outstanding)
                for merged in report.merged:
                    try:
                        poll.parts.append(self.part(merged))
                    except PeerError:
                        poll.outstanding += (mask_of(merged.mask) & self.all).bit_count()

    def polled(self, poll: Poll) -> Harvested:
        """An intermediate result out of what is here and what the poll brought."""
        view = Coverage()
        for part in [*self.coverage.parts, *poll.parts]:
            view.offer(part)
        now = self.result()
        answered = now.answered + view.answered - self.coverage.answered
        declined = now.declined + view.declined - self.coverage.declined
        outstanding = poll.outstanding
        for peer in poll.waiting:
            outstanding += (self.awaited.get(peer, 0) & self.open_mask).bit_count()
        value, error = self._value(view.parts)
        return msgspec.structs.replace(
            now, value=value, answered=answered, declined=declined, outstanding=outstanding, error=error
        )

    def _value(self, parts: list[Part]) -> tuple[object, str]:
        """The value, and why there is none when the merge fails on what others sent."""
        if self.merge is None:
            return [value for _, _, value in self._arrived], ""
        merge = self.merge
        try:
            states = [state_of(part) for part in sorted(parts, key=lambda part: part.mask) if part.is_merged]
            for site, subscriber, value in sorted(self._arrived, key=lambda entry: entry[:2]):
                states.append(merge.lift(value, self.sites[site], subscriber))
            return (merge.finish(merge_all(merge, states)) if states else merge.empty), ""
        except Exception as error:  # noqa: BLE001 - the application's own function may raise anything
            return None, f"merge {merge.name!r} failed: {error!r}"

    def _end_if_full(self, site: int) -> None:
        count = self._ends.get(site)
        if count is None or (self.coverage.mask | self.unreadable) >> site & 1:
            return
        kept = self._kept.get(site, {})
        if len(kept) >= count:
            answered = sum(kept.values())
            self.coverage.offer(Part(1 << site, answered, len(kept) - answered))
            self._kept.pop(site, None)
            self.missing.pop(site, None)

    def check_invariants(self) -> None:
        """No site is counted twice."""
        self.coverage.check_invariants()
        assert not self.coverage.mask & self.unreadable
        for site in self._kept:
            assert not self.coverage.mask >> site & 1


def reply_record(identity: Identity, action: HarvestOver, begun: float, now: float) -> ReplyRecord:
    """For the logs: a request has ended."""
    result = action.result
    return ReplyRecord(
        ts=int(now * 1e6),
        peer=identity.peer,
        epoch=identity.epoch,
        topic=action.topic,
        number=action.number,
        protocol=action.protocol.value,
        merge=action.merge,
        asked=len(result.asked),
        answered=result.answered,
        declined=result.declined,
        missing=[each.site for each in result.missing],
        complete=result.complete,
        duration_us=int((now - begun) * 1e6),
    )
