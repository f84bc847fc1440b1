"""Whom the sockets of a peer report to: the shell, as the wiring sees it."""

from collections.abc import Sequence
from typing import Protocol

from anabranch.overlay.codec import Frame
from anabranch.overlay.identifiers import LinkId
from anabranch.overlay.queues import LinkQueue


class Owner(Protocol):
    """Whom a wiring reports to."""

    def received(self, link: LinkId, frames: Sequence[Frame], now: float) -> None:
        """A message arrived; `turn` follows once all that waits was read."""

    def opened(self, link: LinkId, address: str | None, binding: bytes) -> None:
        """A connection stands; the address if we dialled it, and the key of the connection if it has one."""

    def is_proven(self, link: LinkId) -> bool:
        """Whether the neighbour on a link has introduced itself, with proof where that is asked for."""

    def closed(self, link: LinkId) -> None:
        """A connection is gone."""

    def queue(self, link: LinkId) -> LinkQueue | None:
        """What is to be sent over a connection that was reported as opened; None when it is refused."""

    def dial_failed(self, address: str) -> None:
        """A connection did not come about."""

    def backlog(self, link: LinkId, backlog_s: float) -> None:
        """A link takes less than it is given, or keeps up again (0)."""

    def turn(self) -> None:
        """Act on what was reported."""
