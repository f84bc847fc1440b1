"""What the core asks about restricted topics, and the answer in an open mesh. Loads no cryptography."""

from typing import Protocol

PUBLISH, SUBSCRIBE = 1, 2


class Rights(Protocol):
    """What the core is given."""

    is_open: bool
    """Whether no right can be proven."""
    version: int
    """Grows when somebody's rights may have changed."""

    def may(self, peer: str, verb: int, topic: str) -> bool:
        """Whether a peer may use a restricted topic, by its id."""

    def take(self, origin: str, body: bytes) -> bool:
        """What a peer shows in its RIGHTS record; False when it does not hold."""

    def forget(self, origin: str) -> None:
        """A peer's record is gone."""

    def expire(self) -> None:
        """Time has passed."""

    def distrust(self) -> None:
        """A certificate was revoked: check everything again. What others showed has to be `take`n again."""

    def shown(self) -> bytes:
        """Body of our own RIGHTS record; empty when there is nothing to show."""


class NoRights:
    """For an open mesh, where no right can be proven: restricted topics are closed to everybody."""

    is_open = True
    version = 0

    def may(self, peer: str, verb: int, topic: str) -> bool:
        """Nobody may."""
        del peer, verb, topic
        return False

    def take(self, origin: str, body: bytes) -> bool:
        """Nothing holds."""
        del origin, body
        return False

    def forget(self, origin: str) -> None:
        """Nothing was kept."""
        del origin

    def expire(self) -> None:
        """Nothing to expire."""

    def distrust(self) -> None:
        """Nothing is believed anyway."""

    def shown(self) -> bytes:
        """Nothing to show."""
        return b""
