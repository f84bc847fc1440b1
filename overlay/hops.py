"""Acknowledgements of each link: when to give them, what to send again, and when their absence is a bad sign.

Called for what arrives, for the two timers of a link ("ack", "watch"); returns actions.
"""

from functools import partial

from anabranch.overlay.actions import Action, SendBundle, SendControl
from anabranch.overlay.bundles import OutBundle
from anabranch.overlay.codec import encode_ack
from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.errors import DropReason
from anabranch.overlay.estimators import ACK_SLACK_S, LOSS_CLEAR, answer_due_s
from anabranch.overlay.headers import Flag
from anabranch.overlay.links import Link
from anabranch.overlay.sessions import Sessions, TimerKey
from anabranch.overlay.timers import Timers

ACK_EVERY_BYTES = 512 * 1024
"""So much may arrive without an acknowledgement, unless its sender asks for one."""
RESEND_AFTER_S = 0.5
"""A neighbour that is heard and does not acknowledge for this long has missed something; it may be busy."""
LITTLE_BYTES = 64 * 1024
"""With more under way than this, an acknowledgement may be late for want of speed."""
RESENDS_MAX = 5
"""A bundle is sent over one link so often at most, beyond the first time."""
HOLE_SLACK_S = 1.0
"""What a link lost may come another way for so long: only streams that miss something wait for it."""
_ACK_SOON = int(Flag.ACK_SOON)


class Hops:
    """Both directions of every link, counted by hop sequence."""

    def __init__(
        self, config: Config, sessions: Sessions, counters: Counters, timers: Timers[TimerKey]
    ) -> None:
        self._config = config
        self._sessions = sessions
        self._counters = counters
        self._timers = timers
        self._stranded: list[tuple[Link, OutBundle]] = []
        sessions.on_link = self._opened

    def arrived(
        self, link: Link, ahead: int, flags: int, arrived_to: int, bits: int, now: float
    ) -> list[Action]:
        """A bundle came that is `ahead` of the expected one; it acknowledges the other direction."""
        actions: list[Action] = []
        queue = link.queue
        if queue.retained is None:
            return actions
        if arrived_to != queue.retained.acknowledged_to:
            actions += self.acknowledged(link, arrived_to, bits, now)
        if ahead > 0 and self._config.recovery:
            link.hole_until = now + 4 * link.estimate.delay_s + HOLE_SLACK_S
        if ahead > 0 or flags & _ACK_SOON or queue.owed_bytes >= ACK_EVERY_BYTES:
            actions += self.acknowledge(link)
        elif not link.owes_ack:
            link.owes_ack = True
            self._timers.set(("ack", link.id), now + self._config.ack_delay_s)
        return actions

    def acknowledge(self, link: Link) -> list[Action]:
        """Tell what arrived."""
        queue = link.queue
        queue.owed_bytes = 0
        return [SendControl(link.id, encode_ack(queue.arrived.next, queue.arrived.bits))]

    def ack_due(self, link: Link, now: float) -> list[Action]:
        """What arrived should be acknowledged by now, unless a bundle did so, or it came only lately."""
        due = link.owed_since + self._config.ack_delay_s
        if link.queue.owed_bytes and due > now:
            self._timers.set(("ack", link.id), due)
            return []
        link.owes_ack = False
        return self.acknowledge(link) if link.queue.owed_bytes else []

    def acknowledged(self, link: Link, arrived_to: int, bits: int, now: float) -> list[Action]:
        """The neighbour tells what arrived: the rest is sent again."""
        lost = link.queue.acknowledged(arrived_to, bits, now)
        link.overdue = 0
        return self.resend(link, lost) if lost else []

    def watch(self, link: Link, now: float) -> list[Action]:
        """Look at the oldest bundle under way: its acknowledgement may be overdue."""
        retained = link.queue.retained
        if not retained:
            link.is_watched = False
            return []
        due = retained.oldest_at + self._patience_s(link)
        if due > now or retained.bytes > LITTLE_BYTES:
            self._timers.set(("watch", link.id), max(due, now + ACK_SLACK_S))
            return []
        estimate = link.estimate
        answer_s = 2 * estimate.delay_s + 4 * estimate.jitter_s
        actions: list[Action] = []
        again = link.heard_at + answer_s + ACK_SLACK_S
        if link.heard_at >= retained.oldest_at + self._config.ack_delay_s + answer_s:
            is_losing = self._is_losing(link, now)
            again = retained.oldest_at + self._patience_s(link) + (0.0 if is_losing else RESEND_AFTER_S)
            if again <= now and is_losing:
                older = retained.take_older(now - answer_s - self._config.ack_delay_s)
                self._stranded += [(link, bundle) for bundle in older]
            elif again <= now:
                link.overdue += 1
                actions = self.resend(link, retained.take_older(now - RESEND_AFTER_S / 2))
        elif again <= now:
            self._sessions.fall_quiet(link, now)
        self._timers.set(("watch", link.id), again if again > now else now + ACK_SLACK_S)
        return actions

    def take_stranded(self) -> list[tuple[Link, OutBundle]]:
        """Bundles that got lost on a link which loses more, and should take another way."""
        stranded, self._stranded = self._stranded, []
        return stranded

    def _is_losing(self, link: Link, now: float) -> bool:
        """Whether probes get lost on it too: losses come in bursts, so the same way is the worst one now. A
        neighbour that is only busy answers probes late, and then all of them."""
        if not self._config.recovery:
            return False
        estimate = link.estimate
        due_s = answer_due_s(0.0, estimate.delay_s, estimate.jitter_s)
        return estimate.loss >= LOSS_CLEAR or any(sent < now - due_s for sent in link.probes.values())

    def _opened(self, link: Link) -> None:
        if link.queue.retained is not None:
            link.queue.retained.on_first = partial(self._watch_from, link)

    def _watch_from(self, link: Link, now: float) -> None:
        if not link.is_watched:
            link.is_watched = True
            self._timers.set(("watch", link.id), now + self._patience_s(link))

    def _patience_s(self, link: Link) -> float:
        estimate = link.estimate
        usual_s = answer_due_s(self._config.ack_delay_s, estimate.delay_s, estimate.jitter_s)
        return usual_s * 2**link.overdue if link.overdue < 4 else 4.0

    def resend(self, link: Link, lost: list[OutBundle]) -> list[Action]:
        """Send bundles once more over the link that lost them."""
        again: list[Action] = []
        if not self._config.recovery:
            return again
        for bundle in lost:
            bundle.resent += 1
            if bundle.resent <= RESENDS_MAX:
                again.append(SendBundle(link.id, bundle))
                self._counters.add("resent")
            else:
                self._counters.drop(DropReason.UNRECOVERED, bundle.messages or 1)
        return again
