"""Who must confirm the messages of a stream: peers that want it, durable subscriptions, also those away."""

from collections.abc import Iterable

from anabranch.overlay.actions import Action, ForgetConsumer, KeepConsumer, KeepProgress
from anabranch.overlay.counters import Counters
from anabranch.overlay.durables import DURABLES_MAX, Durables
from anabranch.overlay.errors import DropReason
from anabranch.overlay.identity import Identity
from anabranch.overlay.matching import Matching
from anabranch.overlay.outstreams import OutStream, Receiver
from anabranch.overlay.patterns import matches
from anabranch.overlay.qos import Unconfirmed


class Audiences:
    """Keeps the receivers of each stream as interests and durable subscriptions come and go."""

    def __init__(
        self, identity: Identity, matching: Matching, durables: Durables, counters: Counters
    ) -> None:
        self._identity = identity
        self._matching = matching
        self._durables = durables
        self._counters = counters
        self._known: dict[str, dict[str, str]] = {}
        """Durable subscriptions that the store knows of: peer, name, pattern."""
        self.keeps = False
        """Whether there is a store: what is heard of durable subscriptions is written down."""

    def know(self, consumers: Iterable[tuple[str, str, str]]) -> None:
        """Durable subscriptions that the store knows: (peer, name, pattern)."""
        self.keeps = True
        for peer, name, pattern in consumers:
            self._known.setdefault(peer, {})[name] = pattern

    def heard(self) -> list[Action]:
        """Write down the durable subscriptions that are new, also while nothing is published to them."""
        actions: list[Action] = []
        if self.keeps:
            for (peer, name), entry in self._durables.everyone():
                if entry.is_forgotten:
                    actions += self._unlearn(peer, name)
                else:
                    actions += self._learn(peer, name, entry.pattern)
        return actions

    def stamp(self) -> tuple[int, ...]:
        """Changes when somebody wants something else."""
        matching = self._matching
        return matching.interests.version, matching.local.version, self._durables.version

    def refresh(self, stream: OutStream, now: float) -> list[Action]:
        """Look who must confirm what is put from now on, and who no longer can."""
        stamp = self.stamp()
        if stream.stamp == stamp:
            return []
        stream.stamp = stamp
        actions: list[Action] = []
        wanted = {(peer, "") for peer in self._plain(stream)}
        if stream.key.durable:
            for peer, name, pattern in self._all_known():
                if (peer, name) not in stream.receivers and matches(pattern, stream.topic):
                    away = stream.receivers[peer, name] = Receiver(peer, name, stream.next_sequence, now)
                    away.is_active = False
                    actions.append(
                        KeepProgress(stream.key, [(peer, name, stream.next_sequence)], stream.told_floor)
                    )
            for (peer, name), entry in self._all_durables(stream.topic).items():
                actions += self._learn(peer, name, entry[0])
                if name not in self._known.get(peer, ()):
                    continue
                wanted.add((peer, name))
                receiver = stream.receivers.get((peer, name))
                if receiver is None:
                    receiver = stream.receivers[peer, name] = Receiver(peer, name, stream.next_sequence, now)
                    actions.append(
                        KeepProgress(stream.key, [(peer, name, stream.next_sequence)], stream.told_floor)
                    )
                if entry[1] and not receiver.is_active:
                    receiver.back_to(0)
                    receiver.attempts = receiver.asked = 0
                    receiver.waits_until = 0.0
                    receiver.needs_start = True
                receiver.is_active = entry[1]
            actions += self._forget(stream)
        for key, receiver in list(stream.receivers.items()):
            if key in wanted:
                continue
            if receiver.consumer:
                receiver.is_active = False
            else:
                stream.fail(receiver, stream.next_sequence, Unconfirmed.LEFT)
                del stream.receivers[key]
        for key in sorted(wanted - set(stream.receivers)):
            stream.receivers[key] = Receiver(*key, stream.next_sequence, now)
        stream.names = tuple(sorted({peer for peer, _ in stream.receivers}))
        return actions

    def _plain(self, stream: OutStream) -> list[str]:
        """The peers that must confirm for all but their durable subscriptions."""
        if stream.only is not None:  # whom each message is for was decided when it was put
            possible = set(self._matching.possible_peers(stream.topic))
            return [peer for peer in stream.only if peer in possible]
        return [peer for peer in self._matching.peers(stream.topic) if self._wants_plainly(peer, stream)]

    def _wants_plainly(self, peer: str, stream: OutStream) -> bool:
        """Whether a peer wants it for other than durable subscriptions."""
        if not stream.key.durable:
            return True
        if peer == self._identity.peer:
            named = {each.subscription for each in self._durables.open_for(stream.topic)}
            return any(each not in named for each in self._matching.subscriptions(stream.topic))
        entries = self._durables.of_peer(peer).values()
        durable = {entry.pattern for entry in entries if entry.is_open and not entry.also_plain}
        patterns = self._matching.interests.patterns_of(peer)
        return any(
            each not in durable and matches(each, stream.topic) for each in patterns if isinstance(each, str)
        )

    def _all_durables(self, topic: str) -> dict[tuple[str, str], tuple[str, bool]]:
        """(pattern, whether it is read now) of all durable subscriptions that match, ours included."""
        found = {key: (entry.pattern, entry.is_open) for key, entry in self._durables.wanting(topic).items()}
        me = self._identity.peer
        for own in self._durables.own.values():
            if not own.is_forgotten and matches(own.pattern, topic):
                found[me, own.name] = (own.pattern, own.subscription is not None)
        return found

    def _forget(self, stream: OutStream) -> list[Action]:
        actions: list[Action] = []
        for (peer, name), receiver in list(stream.receivers.items()):
            if not name:
                continue
            entry = self._durables.of_peer(peer).get(name)
            own = self._durables.own.get(name) if peer == self._identity.peer else None
            if (entry is not None and entry.is_forgotten) or (own is not None and own.is_forgotten):
                stream.fail(receiver, stream.next_sequence, Unconfirmed.LEFT)
                del stream.receivers[peer, name]
                actions += self._unlearn(peer, name)
        return actions

    def _all_known(self) -> list[tuple[str, str, str]]:
        return [
            (peer, name, pattern) for peer, named in self._known.items() for name, pattern in named.items()
        ]

    def _learn(self, peer: str, name: str, pattern: str) -> list[Action]:
        """Keep messages for a durable subscription from now on, unless its peer left too many behind."""
        known = self._known.setdefault(peer, {})
        if known.get(name) == pattern:
            return []
        if name not in known and len(known) >= DURABLES_MAX:
            self._counters.drop(DropReason.TABLE_FULL)
            return []
        known[name] = pattern
        return [KeepConsumer(peer, name, pattern)]

    def _unlearn(self, peer: str, name: str) -> list[Action]:
        known = self._known.get(peer, {})
        if known.pop(name, None) is None:
            return []
        if not known:
            del self._known[peer]
        return [ForgetConsumer(peer, name)]
