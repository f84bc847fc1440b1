"""Calls back at precise times, all on one timer of the kernel.

Event loops round their timers to milliseconds, a Linux timerfd does not; elsewhere the loop's own serves.
"""

import asyncio
import contextlib
import ctypes
import heapq
import os
import sys
import time
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1
_TFD_FLAGS = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)


class Alarms:
    """Pending calls of one event loop, by `time.monotonic`. `close` forgets them."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pending: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._armed_for = 0.0
        self._handle: asyncio.TimerHandle | None = None
        self._closed = False
        self._timer = _KernelTimer() if sys.platform == "linux" else None
        if self._timer is not None:
            self._loop.add_reader(self._timer.fd, self._ring)

    def at(self, when: float, callback: Callable[[], None]) -> None:
        """Call once, at `when` or as soon as possible after it; never from within this method."""
        if self._closed:
            return
        self._count += 1
        heapq.heappush(self._pending, (when, self._count, callback))
        self._arm()

    def close(self) -> None:
        """Nothing is called any more. Idempotent."""
        self._closed = True
        self._pending.clear()
        if self._handle is not None:
            self._handle.cancel()
        if self._timer is not None:
            self._loop.remove_reader(self._timer.fd)
            self._timer.close()
            self._timer = None

    def _arm(self) -> None:
        when = self._pending[0][0]
        if self._armed_for and self._armed_for <= when:
            return
        self._armed_for = when
        if self._timer is not None:
            self._timer.set(when)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(max(0.0, when - time.monotonic()), self._ring)

    def _ring(self) -> None:
        self._armed_for = 0.0
        if self._timer is not None:
            self._timer.acknowledge()
        now = time.monotonic()
        due = []
        while self._pending and self._pending[0][0] <= now:
            due.append(heapq.heappop(self._pending)[2])
        for callback in due:
            callback()
        if self._pending:
            self._arm()


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class _KernelTimer:
    """A timerfd on the monotonic clock: readable once its time has come."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._settime = libc.timerfd_settime
        self._setting = _Setting()
        self.fd: int = libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_FLAGS)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def set(self, when: float) -> None:
        """Replace what was set before."""
        nanoseconds = max(1, int(when * 1e9))  # zero would disarm it
        value = self._setting.value
        value.seconds, value.nanoseconds = divmod(nanoseconds, 1_000_000_000)
        if self._settime(self.fd, _TFD_TIMER_ABSTIME, ctypes.byref(self._setting), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def acknowledge(self) -> None:
        """After it was readable."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 8)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.fd)
