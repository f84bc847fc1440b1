"""What subscriptions and beacons need of their peer."""

import time
from collections.abc import Callable, Sequence

from anabranch.overlay.identifiers import SubscriptionId
from anabranch.transport.beacons import Beacon
from anabranch.transport.shell import Shell
from anabranch.transport.subscription import Subscription


class PeerHost:
    """Between subscriptions and their peer."""

    def __init__(self, subscriptions: dict[SubscriptionId, Subscription], shell: Shell) -> None:
        self.counters = shell.node.counters
        self._subscriptions = subscriptions
        self._shell = shell
        self._wiring = shell.wiring

    def forget_subscription(self, subscription: SubscriptionId) -> None:
        """It was closed."""
        if self._subscriptions.pop(subscription, None) is not None and not self._shell.gate.shut:
            self._shell.node.unsubscribe(subscription, time.monotonic())
            self._shell.turn()

    def pause_reading(self, seconds: float) -> None:
        """Leave arriving messages in the sockets for a while."""
        self._wiring.pause_reading(self, seconds)

    def resume_reading(self) -> None:
        """Read again."""
        self._wiring.resume_reading(self)

    def application_backlog(self, path: tuple[str, ...], backlog_s: float) -> None:
        """The application will take this long for what came over this path."""
        self._shell.node.application_backlog(path, backlog_s, time.monotonic())
        self._shell.turn_soon()


def make_beacon(
    group: str, shell: Shell, addresses: Callable[[], list[str]], unicast: Sequence[str]
) -> Beacon:
    """The beacon of a peer: whoever it finds is dialled unless there is a link already."""
    node = shell.node

    def found(peer: str, its_addresses: list[str]) -> None:
        if not shell.gate.shut and peer not in node.links.by_peer:
            node.found(its_addresses, time.monotonic())
            shell.turn()

    return Beacon(
        group,
        name=node.peer if not node.is_secured else f"peer-{node.identity.instance:x}",
        instance=node.identity.instance,
        addresses=addresses,
        on_found=found,
        unicast=list(unicast),
    )
