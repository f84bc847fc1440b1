"""Who wants what, and waiting for it: for subscribers, links and peers. A base of `Peer`."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from anabranch.overlay.patterns import check_topic
from anabranch.transport.shell import Shell


class Awaiting:
    """Looks again whenever the node says that something may have changed."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def subscribers(
        self, topic: str, *, attributes: Mapping[str, object] | None = None, to: str | None = None
    ) -> tuple[str, ...]:
        """The peers that want a topic, with filters or without, and can be reached now, this one included.

        With `attributes` or `to`: those that such a publication would be sent to.
        """
        return self._running().node.destinations(check_topic(topic), attributes, to)

    async def wait_for_subscribers(
        self,
        topic: str,
        count: int = 1,
        *,
        attributes: Mapping[str, object] | None = None,
        to: str | None = None,
        timeout: float | None = None,
    ) -> tuple[str, ...]:
        """Until at least `count` peers want a topic, as `subscribers` has it; who they are. TimeoutError
        names what was there."""

        def there() -> tuple[str, ...]:
            return self.subscribers(topic, attributes=attributes, to=to)

        await self._until(
            lambda: len(there()) >= count,
            timeout,
            lambda: f"{count} subscribers of {topic!r}: there are {_listed(there())}",
        )
        return there()

    async def wait_for_links(self, count: int = 1, *, timeout: float | None = None) -> None:
        """Until this peer has at least `count` links."""
        node = self._running().node
        await self._until(
            lambda: len(node.links.by_peer) >= count,
            timeout,
            lambda: f"{count} links: there are {_listed(node.links.by_peer)}",
        )

    async def wait_for_peers(self, *names: str, timeout: float | None = None) -> None:
        """Until all of these peers can be reached."""
        node = self._running().node
        await self._until(
            lambda: node.reachable() >= set(names),
            timeout,
            lambda: f"peers: no path to {_listed(set(names) - node.reachable())}",
        )

    # Inside

    def _running(self) -> Shell:
        raise NotImplementedError

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _until(
        self, condition: Callable[[], bool], timeout: float | None, awaited: Callable[[], str]
    ) -> None:
        try:
            async with asyncio.timeout(timeout):
                while not condition():
                    await self._changed.wait()
                    self._running()
        except TimeoutError:
            raise TimeoutError(f"waited {timeout} s for {awaited()}") from None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
