"""Snapshots: a poll goes down the tree, what is there comes back up. Nothing of it is final.

After Hill et al., "Publish and subscribe with reply", 3.2.1, step 5: a lower bound on what is outstanding.
"""

import msgspec

from anabranch.overlay.actions import Action, SnapshotTaken
from anabranch.overlay.asking import Protocol
from anabranch.overlay.converging import merge_parts
from anabranch.overlay.coverage import Part
from anabranch.overlay.gathering import Harvest, Poll
from anabranch.overlay.harvests import Harvests
from anabranch.overlay.replywire import Prompt, Report, mask_of
from anabranch.overlay.reporting import Reporting
from anabranch.overlay.siting import Siting
from anabranch.overlay.tending import Tended

WAIT_SHARE = 0.7
"""How much of its time a peer gives to those behind it."""
POLLS_MAX = 1024


class _Passing(msgspec.Struct):
    """A poll that another peer waits for."""

    state: Tended
    to: str
    token: int
    due: float
    waiting: dict[str, None]
    parts: list[Part]
    outstanding: int


class Polling:
    """Polls under way, those of this peer and those that pass."""

    def __init__(self, harvests: Harvests, siting: Siting, reporting: Reporting) -> None:
        self._harvests = harvests
        self._siting = siting
        self._reporting = reporting
        self._passing: list[_Passing] = []
        self._own: list[tuple[Harvest, Poll]] = []
        self._tokens = 0

    def begin(self, harvest: Harvest, own: Tended | None, wait_s: float, now: float) -> int:
        """Our application wants to see what there is; `SnapshotTaken` brings it under this token."""
        self._tokens += 1
        poll = Poll(self._tokens, now + wait_s, {})
        if harvest.request.protocol is Protocol.MERGE:
            for peer, mask in harvest.awaited.items():
                if mask & harvest.open_mask:
                    poll.waiting[peer] = None
                    wait_us = int(wait_s * WAIT_SHARE * 1e6)
                    prompt = Prompt(*harvest.request.key, "poll", token=poll.token, wait_us=wait_us)
                    self._reporting.item(peer, prompt)
        else:
            poll.outstanding = harvest.open_mask.bit_count()
        if own is not None and (part := self._siting.partial(own)) is not None:
            poll.parts.append(part)
            poll.outstanding += own.unanswered
        harvest.polls.append(poll)
        self._own.append((harvest, poll))
        return poll.token

    def pass_on(self, prompt: Prompt, sender: str, state: Tended, now: float) -> None:
        """A poll from the parent: ask those behind us, then answer."""
        wait_s = min(max(prompt.wait_us, 0), 60_000_000) / 1e6
        waiting = {peer: None for peer, mask in state.awaited.items() if mask and peer}
        parts = list(state.coverage.parts) if state.merge is not None else []
        outstanding = 0
        if (own := self._siting.partial(state)) is not None:
            parts.append(own)
            outstanding = state.unanswered
        elif state.own_bit:
            outstanding = 1
        passing = _Passing(state, sender, prompt.token, now + wait_s, waiting, parts, outstanding)
        for peer in waiting:
            below = Prompt(*prompt.key, "poll", token=prompt.token, wait_us=int(prompt.wait_us * WAIT_SHARE))
            self._reporting.item(peer, below)
        if waiting and len(self._passing) < POLLS_MAX:
            self._passing.append(passing)
        else:
            self._answer(passing)

    def take(self, report: Report, sender: str) -> None:
        """An answer for a poll that another peer waits for."""
        for passing in self._passing:
            if passing.token == report.poll and passing.state.key == report.key and sender in passing.waiting:
                del passing.waiting[sender]
                passing.outstanding += max(0, report.outstanding)
                for merged in report.merged:
                    part = Part(mask_of(merged.mask), merged.answered, merged.declined, merged.state)
                    passing.parts.append(part)
                if not passing.waiting:
                    passing.due = 0.0

    def due(self, now: float) -> list[Action]:
        """Answer what is complete, or has waited long enough."""
        actions: list[Action] = []
        for passing in [each for each in self._passing if each.due <= now]:
            self._passing.remove(passing)
            self._answer(passing)
        for harvest, poll in [each for each in self._own if each[1].due <= now or not each[1].waiting]:
            self._own.remove((harvest, poll))
            harvest.polls.remove(poll)
            actions.append(SnapshotTaken(harvest.number, poll.token, harvest.polled(poll)))
        return actions

    @property
    def is_busy(self) -> bool:
        """Whether any poll is under way."""
        return bool(self._passing or self._own)

    def next_timeout(self) -> float | None:
        """When `due` has something to do."""
        if not self._passing and not self._own:
            return None
        times = [each.due for each in self._passing]
        times += [poll.due if poll.waiting else 0.0 for _, poll in self._own]
        return min(times, default=None)

    def _answer(self, passing: _Passing) -> None:
        state = passing.state
        outstanding = passing.outstanding
        for peer in passing.waiting:
            outstanding += state.awaited.get(peer, 0).bit_count()
        answer = Report(*state.key, poll=passing.token, outstanding=outstanding)
        if passing.parts and state.merge is not None:
            parts = sorted(passing.parts, key=lambda part: part.mask)
            answer.merged = merge_parts(state.merge, parts)
        self._reporting.item(passing.to, answer)
