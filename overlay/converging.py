"""Requests of other peers: who is behind us, what they report, what we add; on to the parent.

After Cugola et al., "On adding replies to publish-subscribe" (converge: 2.4), and Hill et al., "Publish and
subscribe with reply" (merge: 3.2.1, stateless: 3.2.2).
"""

import msgspec

from anabranch.overlay.asking import UNREACHED, Protocol, RequestKey
from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.coverage import Part, state_of
from anabranch.overlay.errors import DropReason, PeerError
from anabranch.overlay.identity import Identity
from anabranch.overlay.merging import Merge, Merges, merge_all
from anabranch.overlay.replywire import Merged, Prompt, Report, Request, encode_value, mask_bytes, mask_of
from anabranch.overlay.reporting import Reporting
from anabranch.overlay.siting import Siting
from anabranch.overlay.tending import Tended, Tending

CHECK_MAX_S = 30.0
MERGED_MAX_BYTES = 256 * 1024
"""A merged part that is larger is not merged with others."""
NOTHING = msgspec.Raw(b"")
LATELY_S = 3.0
"""What was sent longer ago than this before a link broke has arrived, or was sent again."""
ORPHANED_AFTER_S = 5.0
"""State of a request is freed when its publisher cannot be reached for so long."""


class Converging:
    """The soft state of requests that pass here, and the reports made of it."""

    def __init__(
        self,
        identity: Identity,
        config: Config,
        merges: Merges,
        tending: Tending,
        siting: Siting,
        reporting: Reporting,
        counters: Counters,
    ) -> None:
        self._identity = identity
        self._config = config
        self._merges = merges
        self._tending = tending
        self._siting = siting
        self._reporting = reporting
        self._counters = counters

    # A request comes by

    def take_over(
        self,
        request: Request,
        path: tuple[str, ...],
        behind: dict[str, tuple[str, ...]],
        is_site: bool,
        *,
        names_way: bool,
        started_at: float,
        now: float,
    ) -> Tended | None:
        """A request came over this path (we are its end); `behind` are the sites of each next peer.

        What is kept of it; None when it was known, is over, or there is no room.
        """
        key, parent = request.key, path[-2] if len(path) > 1 else ""
        state = self._tending.get(key)
        if state is not None:
            if is_site and self._identity.peer not in state.index:
                raise PeerError(DropReason.CONFLICT, "another request came under this number")
            if is_site and not state.is_site:
                self._become_site(state, parent, behind, request.attempt)
                return state
            self._again(state, parent, behind, is_site, request.attempt)
            return None
        if self._tending.is_over(key):
            return None
        merges_here = request.protocol is Protocol.MERGE and self._config.reply_state
        merge = self._merges.get(request.merge) if merges_here else None
        state = Tended(request, merge, started_at, now)
        if not self._tending.has_room() or state.expires_at <= now:
            self._refuse(state, parent, behind, is_site)
            return None
        state.parent = parent
        state.is_straight = request.attempt > 0
        state.is_site = is_site
        if names_way or request.protocol is Protocol.STATELESS:
            state.back = list(path[-3::-1])
        if request.protocol.follows_tree and request.attempt == 0:
            for peer, names in behind.items():
                self._await(state, peer, state.audience.mask_of(names))
        if is_site:
            state.awaited[""] = 1 << state.index[self._identity.peer]
        state.expected |= state.outstanding
        if len(state.awaited) > is_site:
            state.check_at = now + self._config.reply_check_s
        if not is_site:
            request.payload = NOTHING  # it only passes here
        self._tending.add(state)
        return state

    def _become_site(
        self, state: Tended, parent: str, behind: dict[str, tuple[str, ...]], attempt: int
    ) -> None:
        """So far the request only passed here; the copy that is for us was another one, or got lost."""
        if attempt:
            self._go_straight(state)
        else:
            self._again(state, parent, behind, True, 0)
        state.is_site = True
        state.awaited[""] = 1 << state.index[self._identity.peer]
        state.expected |= state.awaited[""]
        if state.is_finished:  # what it merged has left
            state.is_finished, state.is_passing = False, True

    def _again(
        self, state: Tended, parent: str, behind: dict[str, tuple[str, ...]], is_site: bool, attempt: int
    ) -> None:
        """The same request once more: another copy, or the publisher lacks our reply."""
        if attempt:
            if is_site and state.is_site:
                self._go_straight(state)
                self._siting.say_again(state)
            return
        if not state.request.protocol.follows_tree or not self._config.reply_state:
            return
        extra = 0
        for peer, names in behind.items():
            mask = state.audience.mask_of(names) & ~state.expected
            if mask and not state.is_finished:
                self._await(state, peer, mask)
            elif mask and parent == state.parent:
                self._reporting.lost(self._to(state), state.key, mask, self._identity.peer, "asked too late")
            extra |= state.audience.mask_of(names)
        state.expected |= extra
        if is_site:
            extra |= 1 << state.index[self._identity.peer]
        if parent and parent != state.parent:
            self._counters.add("request_copies")
            self._reporting.done(parent, state.key, extra)

    def _go_straight(self, state: Tended) -> None:
        """The publisher wants to hear from us past the tree: the parent need not wait for what we bring."""
        if not state.is_straight:
            state.is_straight = True
            if state.parent and state.request.protocol.follows_tree:
                self._reporting.done(state.parent, state.key, state.expected)

    def _await(self, state: Tended, peer: str, mask: int) -> None:
        """A next peer is to bring these sites. One without a link brings nothing: the request has left
        on a detour to it, or not at all."""
        if self._reporting.is_linked(peer):
            state.awaited[peer] = state.awaited.get(peer, 0) | mask
        else:
            state.expected |= mask
            self._reporting.lost(self._to(state), state.key, mask, f"{self._identity.peer}>{peer}", "no link")

    def _refuse(self, state: Tended, parent: str, behind: dict[str, tuple[str, ...]], is_site: bool) -> None:
        """No room for its state: let it pass, and say so for ourselves."""
        self._counters.add("requests_refused")
        if is_site:
            mask = 1 << state.index[self._identity.peer]
            self._reporting.lost("", state.key, mask, self._identity.peer, "too many requests open there")
        if state.request.protocol.follows_tree and parent:
            mask = 0
            for names in behind.values():
                mask |= state.audience.mask_of(names)
            self._reporting.lost("", state.key, mask, self._identity.peer, "not kept there")

    def tell_unreached(
        self, request: Request, destinations: tuple[str, ...], behind: dict[str, tuple[str, ...]], client: str
    ) -> None:
        """A light client left the routing to us: tell it whom no path reaches."""
        reached = {self._identity.peer, client}
        for names in behind.values():
            reached.update(names)
        mask = request.audience.mask_of(name for name in destinations if name not in reached)
        self._reporting.lost(client, request.key, mask, self._identity.peer, UNREACHED)

    # Reports from behind

    def take(self, report: Report, sender: str, now: float) -> None:
        """A report for another publisher: account for it, and pass it on or hold it."""
        state = self._tending.get(report.key)
        if state is None:
            self._pass_by(report)
            return
        to = self._to(state)
        key = state.key
        self._name_way(state, to)
        for record in report.records:
            if state.is_holding and not report.entries:
                state.records[record.origin] = record
            else:
                self._reporting.record(to, key, record)
        for entry in report.entries:
            self._reporting.entry(to, key, entry)
        settled = 0
        for ended in report.ended:
            site = ended[0]
            self._reporting.ended(to, key, ended)
            settled |= 1 << site if 0 <= site < len(state.index) else 0
        for merged in report.merged:
            settled |= mask_of(merged.mask)
            self._take_merged(state, to, merged)
        for mask, where, why in report.lost:
            self._reporting.lost(to, key, mask_of(mask), where, why)
            settled |= mask_of(mask)
        done = mask_of(report.done)
        if report.checked:
            astray = done & state.awaited.get(sender, 0) & ~settled
            self._reporting.lost(to, key, astray, f"{sender}>{self._identity.peer}", "a report got lost")
        state.settle(settled | done)
        state.sent_at = now
        self.conclude(state)

    def _take_merged(self, state: Tended, to: str, merged: Merged) -> None:
        if (
            state.merge is None
            or state.is_finished
            or state.is_passing
            or len(merged.state) > MERGED_MAX_BYTES
        ):
            self._reporting.merged(to, state.key, merged)
            return
        part = part_of(merged)
        if not self._tending.hold(state, len(merged.state)):
            self._counters.add("replies_unheld")
            self._reporting.merged(to, state.key, merged)
        elif not state.coverage.offer(part):
            mask = part.mask & ~state.coverage.mask
            self._reporting.lost(to, state.key, mask, self._identity.peer, "merged twice")

    def conclude(self, state: Tended) -> None:
        """When nobody is awaited any more, this is the last report."""
        if state.is_finished or state.outstanding:
            self._tending.rearm(state)
            return
        state.is_finished = True
        if state.request.protocol.follows_tree and self._config.reply_state:
            to = self._to(state)
            self._send_merged(state, to)
            if to:
                self._reporting.done(to, state.key, state.expected)
            self._name_way(state, to)
        self._tending.release(state)
        state.check_at = float("inf")
        self._tending.rearm(state)

    def _send_merged(self, state: Tended, to: str) -> None:
        parts = sorted(state.coverage.parts, key=lambda part: part.mask)
        if state.merge is None or not parts:
            return
        for merged in merge_parts(state.merge, parts):
            self._reporting.merged(to, state.key, merged)
        for record in state.records.values():
            self._reporting.record(to, state.key, record)

    def _pass_by(self, report: Report) -> None:
        """Nothing is kept of this request here: on by the way it names, or straight."""
        if self._tending.is_over(report.key):
            self._counters.add("replies_late")
            return
        if report.poll:
            return
        if report.back:
            to, report.back = report.back[0], report.back[1:]
            self._reporting.item(to, report)
            return
        self._reporting.item("", report)

    # Trouble, time

    def neighbour_lost(self, peer: str, now: float) -> None:
        """A link went down: what went to or was to come from that peer needs another way."""
        me = self._identity.peer
        for state in self._tending:
            if not state.request.protocol.is_repaired:
                continue
            if state.parent == peer and not state.is_straight:
                state.is_straight = True
                if not state.is_finished or now - state.sent_at < LATELY_S:
                    mask = state.expected & ~state.outstanding
                    self._reporting.lost("", state.key, mask, f"{me}>{peer}", "a link broke on the way back")
            waiting = state.awaited.pop(peer, 0)
            if waiting and peer:
                to = self._to(state)
                self._reporting.lost(to, state.key, waiting, f"{me}>{peer}", "a link broke")
                self._name_way(state, to)
                self.conclude(state)

    def hand_over(self) -> None:
        """We leave: what waits here to be merged with more goes on as it is."""
        for state in self._tending:
            if state.is_holding:
                self._stop_holding(state)

    def look(self, state: Tended, now: float) -> None:
        """One of its times is over."""
        if now >= state.expires_at:
            self._siting.withdraw(state)
            self._tending.free(state)
            return
        if now >= state.flush_at and state.coverage.parts and not state.is_passing and not state.is_finished:
            self._stop_holding(state)
        if now >= state.check_at:
            state.checks += 1
            state.check_at = now + min(self._config.reply_check_s * 2**state.checks, CHECK_MAX_S)
            for peer, mask in state.awaited.items():
                if mask and peer:
                    self._reporting.item(peer, Prompt(*state.key, "check", mask_bytes(mask)))
        self._tending.rearm(state)

    def _stop_holding(self, state: Tended) -> None:
        self._counters.add("merges_cut_short")
        state.is_passing = True
        self._send_merged(state, self._to(state))
        mask = state.coverage.mask
        self._tending.release(state)
        state.coverage.mask = mask

    def sweep(self, reachable: set[str], epoch_of: dict[str, int], now: float) -> None:
        """Free what belongs to publishers that are gone."""
        for state in self._tending:
            origin = state.key.origin
            is_there = origin in reachable and epoch_of.get(origin, 0) <= state.key.epoch
            if is_there or not state.parent:
                state.unreached_since = None
            elif state.unreached_since is None:
                state.unreached_since = now
            elif now >= state.unreached_since + ORPHANED_AFTER_S:
                self._counters.add("requests_orphaned")
                self.close(state.key)

    def check(self, prompt: Prompt, sender: str) -> None:
        """The parent asks what became of a request."""
        state = self._tending.get(prompt.key)
        mask = mask_of(prompt.mask)
        if state is not None and state.parent == sender:
            self._reporting.done(sender, prompt.key, mask & ~state.outstanding, checked=True)
        elif state is not None:
            self._reporting.done(sender, prompt.key, mask)  # another parent has it from us
        elif not self._tending.is_over(prompt.key):
            self._reporting.lost(sender, prompt.key, mask, self._identity.peer, "the request got lost")

    def close(self, key: RequestKey) -> None:
        """The publisher wants no more: free it here and behind us."""
        state = self._tending.get(key)
        if state is None:
            self._tending.remember_over(key)
            return
        for peer in state.awaited:
            if peer:
                self._reporting.item(peer, Prompt(*key, "close"))
        self._siting.withdraw(state)
        self._tending.free(state)

    # Inside

    def _to(self, state: Tended) -> str:
        return "" if state.is_straight else state.parent

    def _name_way(self, state: Tended, to: str) -> None:
        if to and state.back:
            self._reporting.way_back(to, state.key, state.back)


def part_of(merged: Merged) -> Part:
    """A merged part as it came."""
    return Part(mask_of(merged.mask), merged.answered, merged.declined, merged.state)


def merge_parts(merge: Merge, parts: list[Part]) -> list[Merged]:
    """One part of several; the parts themselves where their states cannot be merged, or grow too large."""
    try:
        merged = merge_all(merge, [state_of(part) for part in parts if part.is_merged])
        encoded = encode_value(merged)
    except Exception:  # noqa: BLE001 - a state may be nonsense, the application's function raise anything
        encoded = None
    if encoded is None or len(encoded) > MERGED_MAX_BYTES:
        return [
            Merged(mask_bytes(part.mask), part.answered, part.declined, part.state)  # type: ignore[arg-type]
            for part in parts
        ]
    mask = answered = declined = 0
    for part in parts:
        mask |= part.mask
        answered += part.answered
        declined += part.declined
    return [Merged(mask_bytes(mask), answered, declined, encoded)]
