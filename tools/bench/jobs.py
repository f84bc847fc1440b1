"""What the bench's parent tells its child processes, and how a child talks back.

A job goes to the child as its argument. Afterwards both sides exchange JSON lines: the child reports events
on its standard output, the parent sends orders on the child's standard input. When that input ends, the
parent is gone and the child ends at once, so that no bench leaves processes behind.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from anabranch.overlay.errors import AnabranchError

TOPIC = "bench/topic"
PING_TOPIC = "bench/ping"
PONG_TOPIC = "bench/pong"
ASK_TOPIC = "bench/ask"


class Job(msgspec.Struct, kw_only=True, frozen=True):
    """One process's part in one measurement."""

    system: str
    role: str
    """`send`, `receive`, `ping`, `echo`, `relay`, `idle` or `serve`: a function of the system's module."""
    variant: str = ""
    """Which idiom of the system to use, where it has several."""
    name: str = "peer"
    address: str = ""
    """Where to connect to; empty to wait for others to connect."""
    directory: str = ""
    """Where the process may leave files; the parent removes it."""
    size: int = 64
    warmup_s: float = 0.5
    seconds: float = 3.0
    subscribers: int = 1
    """A sender starts when this many subscribers are known to it."""
    messages: int = 0
    """When positive, exactly this many are sent, instead of for `seconds`."""
    rate: float = 0.0
    """Messages per second to send at; 0 for as fast as they are taken."""
    star: bool = False
    """Keep to the links that were asked for: no further neighbours."""
    identity: str = ""
    """Where the identity of this peer is; empty for an open mesh."""
    more: dict[str, Any] = {}
    """What only the roles of one bench have to know."""

    @property
    def burst(self) -> int:
        """How many messages pass between two looks at the clock, the same for every system."""
        return max(1, min(256, 1024 * 1024 // self.size))

    def payload(self) -> bytes:
        """What is sent: not compressible at a glance, the same in every run."""
        return (bytes(range(256)) * (self.size // 256 + 1))[: self.size]


class BenchError(AnabranchError):
    """A measurement failed; the text has the output of the process that failed."""


class Parent:
    """A child's line to the process that started it."""

    def __init__(self) -> None:
        self.expected: int | None = None
        """How many messages were sent in all, once the parent knows."""
        self.stopped = threading.Event()
        self.on_orphaned: Callable[[], object] | None = None
        """Called before this process ends because its parent is gone: for what must not outlive it."""
        threading.Thread(target=self._listen, name="bench-orders", daemon=True).start()

    def report(self, event: str, **fields: Any) -> None:
        """Tell the parent; fields must be plain JSON values."""
        sys.stdout.buffer.write(msgspec.json.encode({"event": event, **fields}) + b"\n")
        sys.stdout.buffer.flush()

    def wait_stop(self) -> None:
        """Block until the parent says that this process is not needed any more."""
        self.stopped.wait()

    def _listen(self) -> None:
        # Reads the descriptor itself: a buffered reader would hold its lock while the interpreter shuts down.
        rest = b""
        while chunk := os.read(0, 4096):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                order = msgspec.json.decode(line)
                if "expected" in order:
                    self.expected = order["expected"]
                if order.get("stop"):
                    self.stopped.set()
        if not self.stopped.is_set():
            if self.on_orphaned is not None:
                self.on_orphaned()
            os._exit(3)


def resident_bytes() -> int:
    """Memory of this process that is in RAM now, or its peak where the system doesn't tell."""
    try:
        with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - opened often, while measuring
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def cpu_seconds() -> float:
    """CPU time of this process, all threads, user and system."""
    return time.process_time()
