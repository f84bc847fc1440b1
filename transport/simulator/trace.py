"""A fingerprint of everything that happened in a run, so that two runs can be compared."""

import enum
import hashlib
import struct
from collections.abc import Sequence

from anabranch.overlay.codec import Frame

FOLD_AT_PARTS = 8192
"""Noted parts are hashed in lots of this many: fewer calls cost less."""

HEAD = struct.Struct(">dBIB")
"""time, kind, number of the peer, number of frames."""


class TraceKind(enum.IntEnum):
    """What happened to a peer."""

    FRAME = 1
    TIMER = 2
    OPENED = 3
    CLOSED = 4
    DIAL_FAILED = 5
    APPLICATION = 6
    FAULT = 7


class Trace:
    """The running fingerprint. The same seed gives the same one, on any machine and in any process."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self.parts: list[Frame] = []
        """Not hashed yet. The simulator's inner loop appends here and calls `fold` past FOLD_AT_PARTS."""

    def note(self, time: float, kind: TraceKind, peer: int, frames: Sequence[Frame] = ()) -> None:
        """Something happened."""
        self.parts.append(HEAD.pack(time, kind, peer, len(frames) & 0xFF))
        self.parts.extend(frames)
        if len(self.parts) > FOLD_AT_PARTS:
            self.fold()

    def fold(self) -> None:
        """Hash what was noted."""
        self._sha.update(b"".join(self.parts))
        self.parts.clear()

    def digest(self) -> str:
        """The fingerprint so far, in hexadecimal."""
        self.fold()
        return self._sha.hexdigest()
