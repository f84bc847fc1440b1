"""Whether a peer may be used: shut once it is closed, and in processes forked from its own."""

import os
import weakref

from anabranch.overlay.errors import ClosedError


class Gate:
    """Shared by everything that belongs to one peer."""

    __slots__ = ("__weakref__", "reason", "shut")

    def __init__(self) -> None:
        self.shut = False
        self.reason = ""
        _open_gates.add(self)

    def close(self, reason: str) -> None:
        """From now on `check` raises."""
        if not self.shut:
            self.shut, self.reason = True, reason
            _open_gates.discard(self)

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
