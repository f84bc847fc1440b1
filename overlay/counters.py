"""What happened how often. Names are stable: they appear in reports and in control records."""

from anabranch.overlay.errors import DropReason
from anabranch.overlay.headers import Kind

_SENT_BYTES = {int(kind): f"sent.{kind.name.lower()}_bytes" for kind in Kind if kind is not Kind.BUNDLE}


def sent_bytes_of(kind: int) -> str:
    """The counter of the bytes of one kind of control message; `sent.control_bytes` counts them all."""
    return _SENT_BYTES.get(kind, "sent.other_bytes")


class Counters(dict[str, int]):
    """Counts by name; an unknown name counts zero."""

    def __missing__(self, name: str) -> int:
        return 0

    def add(self, name: str, count: int = 1) -> None:
        """Count something."""
        self[name] = self[name] + count

    def drop(self, reason: DropReason, count: int = 1) -> None:
        """Count what was dropped, by its reason."""
        self.add(f"dropped.{reason.value}", count)
