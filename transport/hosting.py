"""What a subscription may ask of the peer that it belongs to."""

import time

from anabranch.overlay.identifiers import SubscriptionId
from anabranch.transport.shell import Shell
from anabranch.transport.subscription import Subscription


class SubscriptionHost:
    """What a subscription needs of its peer (see `subscription.Host`)."""

    def __init__(self, subscriptions: dict[SubscriptionId, Subscription], shell: Shell) -> None:
        self.counters = shell.node.counters
        self._subscriptions = subscriptions
        self._shell = shell
        self._wiring = shell.wiring

    def forget_subscription(self, subscription: SubscriptionId) -> None:
        """The subscription was closed."""
        if self._subscriptions.pop(subscription, None) is not None and not self._shell.gate.shut:
            self._shell.node.unsubscribe(subscription, time.monotonic())
            self._shell.turn()

    def pause_reading(self, seconds: float) -> None:
        """Leave what arrives in the sockets for a while."""
        self._wiring.pause_reading(self, seconds)

    def resume_reading(self) -> None:
        """Read again."""
        self._wiring.resume_reading(self)

    def application_backlog(self, path: tuple[str, ...], backlog_s: float) -> None:
        """How long the application will take for what came over a path."""
        self._shell.node.application_backlog(path, backlog_s, time.monotonic())
        self._shell.turn_soon()
