"""What an application may ask of its node about requests and replies. A base of `Commands`."""

from collections.abc import Callable, Sequence
from typing import Any

from anabranch.overlay.actions import Action
from anabranch.overlay.asking import WITHIN_MAX_S, Expectation, Protocol, RequestKey
from anabranch.overlay.errors import UsageError
from anabranch.overlay.parts import Parts
from anabranch.overlay.patterns import check_topic


class ReplyCommands:
    """Each takes `now`; a shell takes the actions afterwards."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._actions: list[Action] = []
        self._replies = parts.replies

    def request(
        self,
        topic: str,
        payload: object,
        now: float,
        *,
        protocol: Protocol | None = None,
        merge: str = "",
        expects: Sequence[Expectation] = (),
        within_s: float = 30.0,
        tau_s: float = 0.0,
        to: str | None = None,
        reply_to: str = "",
    ) -> int:
        """Publish and ask for replies; its number. `RepliesArrived` and `HarvestOver` tell what came of it.

        `to`: an expression over attributes of sites; by default all that want the topic are asked.
        """
        check_topic(topic)
        self._parts.restricting.check_publish(self._parts.identity.peer, topic)
        if not 0 < within_s <= WITHIN_MAX_S:
            raise UsageError(f"within = {within_s}: seconds, above 0 and at most {WITHIN_MAX_S:g}")
        if protocol is None:
            protocol = Protocol.MERGE if merge else Protocol.CONVERGE
        if protocol is Protocol.MERGE and not merge:
            merge = "histogram"
        if protocol.leaves_mesh and not self._parts.verifier.is_open:
            raise UsageError(f"protocol = {protocol.value!r}: such replies would leave the secured mesh")
        wanted = [each for each in expects if each]
        number, actions = self._replies.request(
            topic, payload, protocol, merge, wanted, within_s, tau_s, to, reply_to, now
        )
        self._actions += actions
        return number

    def reply(self, key: RequestKey, subscriber: int, value: object, now: float) -> bool:
        """Answer a request; False when nobody waits for it any more. Once per subscriber."""
        return self._replies.reply(key, subscriber, value, False, now)

    def decline(self, key: RequestKey, subscriber: int, now: float) -> bool:
        """Let the publisher know that there will be no answer from this subscriber."""
        return self._replies.reply(key, subscriber, None, True, now)

    def snapshot(self, number: int, wait_s: float, now: float) -> int:
        """Poll a request of ours; the token under which `SnapshotTaken` comes, 0 when it has ended."""
        return self._replies.snapshot(number, wait_s, now)

    def close_request(self, number: int, now: float) -> None:
        """End a request of ours."""
        self._actions += self._replies.close(number, now)

    def arrived_aside(self, frame: bytes, now: float) -> None:
        """A `direct` or `datagram` reply, or one to the topic of ours, has come."""
        self._actions += self._replies.arrived_aside(frame, now)

    @property
    def reply_state_bytes(self) -> int:
        """What this peer holds now for requests of others, as `harvest_max_bytes` counts it."""
        return self._replies.tending.bytes

    def register_merge(
        self,
        name: str,
        merge: Callable[[Any, Any], Any],
        lift: Callable[[Any], Any] | None = None,
        finish: Callable[[Any], Any] | None = None,
    ) -> None:
        """Make a merge known to this peer."""
        self._replies.merges.register(name, merge, lift, finish)
