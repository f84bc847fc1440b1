"""What `Peer.request` returns: replies one by one, all at once, or a look at what there is so far."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from anabranch.overlay.actions import Harvested, Reply
from anabranch.overlay.errors import AnabranchError, ClosedError

if TYPE_CHECKING:
    from anabranch.transport.shell import Shell

REPLIES_MAX = 65_536
"""Replies that wait to be read one by one; the result holds them all the same."""


class Harvest:
    """The replies to one request: iterate, or `await` the whole. Leaving `async with` ends it."""

    def __init__(self, shell: "Shell", topic: str) -> None:
        self.topic = topic
        self.number = 0
        self.unread = 0
        """Replies that came when too many waited to be read one by one; they are in the result."""
        self._shell = shell
        self._replies: deque[Reply] = deque()
        self._result: Harvested | None = None
        self._changed = asyncio.Event()
        self._polls: dict[int, asyncio.Future[Harvested]] = {}
        self._was_abandoned = False

    @property
    def result(self) -> Harvested | None:
        """What it amounted to; None while replies are still to come."""
        return self._result

    def ready(self) -> bool:
        """Whether a reply can be read now without waiting."""
        return bool(self._replies)

    async def __aiter__(self) -> AsyncIterator[Reply]:
        """Replies as they come, until there will be no more. Merged ones come with the result only."""
        while True:
            while self._replies:
                yield self._replies.popleft()
            if self._result is not None or self._was_abandoned:
                return
            await self._changed.wait()
            self._changed.clear()

    def __await__(self) -> Generator[Any, None, Harvested]:
        """The result: when every site has said all, when nobody else can, or when the time is over."""
        return self._wait().__await__()

    async def snapshot(self, *, wait: float = 0.5) -> Harvested:
        """What there is by now, with a lower bound on the replies still outstanding. Ends nothing.

        `wait`: seconds for peers on the way to tell what they hold, where replies are merged.
        """
        if self._result is not None:
            return self._result
        self._shell.gate.check()
        token = self._shell.node.snapshot(self.number, wait, time.monotonic())
        future = self._polls[token] = asyncio.get_running_loop().create_future()
        self._shell.turn()
        try:
            taken: Harvested = await future
            return taken
        finally:
            self._polls.pop(token, None)

    def close(self) -> None:
        """End it here and at every peer on the way; what is said later is discarded."""
        if self._result is None and not self._shell.gate.shut:
            self._shell.node.close_request(self.number, time.monotonic())
            self._shell.turn()

    async def __aenter__(self) -> "Harvest":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Called by the peer

    def came(self, replies: list[Reply]) -> None:
        """New replies."""
        room = REPLIES_MAX - len(self._replies)
        self._replies.extend(replies[:room])
        self.unread += max(0, len(replies) - room)
        self._changed.set()

    def over(self, result: Harvested) -> None:
        """It has ended."""
        self._result = result
        self._changed.set()
        for future in self._polls.values():
            if not future.done():
                future.set_result(result)

    def polled(self, token: int, result: Harvested) -> None:
        """A snapshot is there."""
        future = self._polls.get(token)
        if future is not None and not future.done():
            future.set_result(result)

    def abandon(self) -> None:
        """The peer was closed."""
        self._was_abandoned = True
        self._changed.set()
        for future in self._polls.values():
            if not future.done():
                future.set_exception(ClosedError("the peer was closed"))

    async def _wait(self) -> Harvested:
        while self._result is None:
            if self._was_abandoned:
                raise ClosedError(f"the request to {self.topic!r} has no result: the peer was closed")
            await self._changed.wait()
            if self._result is None:
                self._changed.clear()
        self._changed.set()
        if self._result.error:
            raise AnabranchError(f"request to {self.topic!r}: {self._result.error}")
        return self._result
