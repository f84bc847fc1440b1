"""Whether a peer may be used: shut once it is closed, and in processes forked from its own."""

import os
import weakref
from collections.abc import Callable

from anabranch.overlay.errors import ClosedError


class Gate:
    """Shared by everything that belongs to one peer."""

    __slots__ = ("__weakref__", "_on_shut", "reason", "shut")

    def __init__(self, on_shut: Callable[[], None] = lambda: None) -> None:
        self.shut = False
        self.reason = ""
        self._on_shut = on_shut
        _open_gates.add(self)

    def close(self, reason: str) -> None:
        """From now on `check` raises."""
        if not self.shut:
            self.shut, self.reason = True, reason
            _open_gates.discard(self)
            self._on_shut()

    def check(self) -> None:
        """ClosedError if the peer is closed."""
        if self.shut:
            raise ClosedError(self.reason)


_open_gates: "weakref.WeakSet[Gate]" = weakref.WeakSet()


def _refuse_after_fork() -> None:
    for gate in list(_open_gates):
        gate.close(
            "this process was forked from the one that opened the peer; ZeroMQ does not survive a fork: "
            "open a peer of its own in the child, or start children with multiprocessing's 'spawn'"
        )


os.register_at_fork(after_in_child=_refuse_after_fork)
