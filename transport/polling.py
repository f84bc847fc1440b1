"""Keeps the event loop awake for a moment after something arrived, where that pays: in conversations.

Waking a sleeping thread takes longer than answering a message. While awake, the thread gives way to others
after each look, ZeroMQ's own among them. It stops by itself where nothing comes soon after something came,
and where others need the core for longer than it takes to bring a message.
"""

import asyncio
import os
import time

CONVERSATION_MAX_BYTES = 16 * 1024
"""Who reads more at once takes in a stream: nobody waits for an answer, and others need the core."""
CREDIT_MAX = 8
CONTESTED_S = 0.0001
"""Who gives way and gets the core back later than this keeps it from others that have much to do: maybe from
those that are to answer."""
TRY_EVERY = 32
"""Without credit, every so many arrivals it is tried again whether more comes soon."""


class BusyPoll:
    """One per peer; `arrived` after each read."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self.is_polling = False
        """Whether the loop is kept awake now."""
        self._until = 0.0
        self._credit = 0
        self._arrivals = 0

    def arrived(self, size: int) -> None:
        """So many bytes were read: stay awake if the next thing is likely to come soon."""
        if not self._seconds or size > CONVERSATION_MAX_BYTES:
            return
        if self.is_polling:
            self._credit = min(CREDIT_MAX, self._credit + 1)
            self._until = time.monotonic() + self._seconds
            return
        self._arrivals += 1
        if self._credit or self._arrivals % TRY_EVERY == 0:
            self.is_polling = True
            self._until = time.monotonic() + self._seconds
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        now = time.monotonic()
        if now < self._until:
            os.sched_yield()
            if time.monotonic() - now < CONTESTED_S:
                self._loop.call_soon(self._look)
                return
            self._credit = 0
        self.is_polling = False
        self._credit = max(0, self._credit - 1)
