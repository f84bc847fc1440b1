"""A link goes dark; messages take the way over a third peer, and nobody has to do anything.

`a` and `c` are neighbours, and both are neighbours of `b`. Two of the links run through small proxies: one is
slow, the other can be made to carry nothing while its connection stays open, as when a cable is cut.

Run it: `python examples/relay_around_a_failed_link.py`
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from anabranch import Config, Peer

CONFIG = Config.local(neighbours_target=0)
"""No links but those to the join addresses: the mesh keeps its shape."""


async def main() -> None:
    """Publish from a to c all the time, and print each path that messages take."""
    async with contextlib.AsyncExitStack() as stack:
        c = await stack.enter_async_context(Peer("c", listen="tcp://127.0.0.1:0", config=CONFIG, open=True))
        long_way = await stack.enter_async_context(proxy(c.addresses[0], delay_s=0.005))
        b = await stack.enter_async_context(
            Peer("b", listen="tcp://127.0.0.1:0", join=long_way.address, config=CONFIG, open=True)
        )
        direct = await stack.enter_async_context(proxy(c.addresses[0]))
        a = await stack.enter_async_context(
            Peer("a", join=[direct.address, *b.addresses], config=CONFIG, open=True)
        )
        await a.wait_for_links(2, timeout=5)
        await b.wait_for_links(2, timeout=5)

        ticks = c.subscribe("ticks")
        await a.wait_for_subscribers("ticks", timeout=5)
        publishing = asyncio.create_task(publish(a))
        path: tuple[str, ...] = ()
        cut_at = 0.0
        async with asyncio.timeout(20):
            async for message in ticks:
                if message.path != path:
                    path = message.path
                    print(f"path: {' > '.join(path)}")
                    if cut_at:
                        break
                if message.payload == 30:
                    print("the link between a and c carries nothing any more")
                    direct.is_dark = True
                    cut_at = time.monotonic()
        print(f"messages arrive again after {time.monotonic() - cut_at:.2f} s")
        publishing.cancel()


async def publish(peer: Peer) -> None:
    """A hundred messages per second."""
    ticks = await peer.publisher("ticks")
    number = 0
    while True:
        await ticks.put(number)
        number += 1
        await asyncio.sleep(0.01)


class Proxy:
    """Forwards TCP to a target; while `is_dark`, it swallows everything."""

    def __init__(self, target: str, delay_s: float) -> None:
        self.address = ""
        self.is_dark = False
        self._host, _, port = target.removeprefix("tcp://").rpartition(":")
        self._port = int(port)
        self._delay_s = delay_s
        self.tasks: set[asyncio.Task[None]] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Join an accepted connection with one to the target."""
        there_reader, there_writer = await asyncio.open_connection(self._host, self._port)
        for source, sink in ((reader, there_writer), (there_reader, writer)):
            self.tasks.add(asyncio.create_task(self._forward(source, sink)))

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while chunk := await source.read(65536):
                await asyncio.sleep(self._delay_s)
                if not self.is_dark:
                    sink.write(chunk)
                    await sink.drain()
        except ConnectionError:
            pass  # the other direction ends as well
        finally:
            sink.close()


@contextlib.asynccontextmanager
async def proxy(target: str, delay_s: float = 0.0) -> AsyncIterator[Proxy]:
    """A running proxy on a port of its own."""
    running = Proxy(target, delay_s)
    server = await asyncio.start_server(running.accept, "127.0.0.1", 0)
    running.address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield running
    finally:
        server.close()
        for task in running.tasks:
            task.cancel()
        await asyncio.gather(*running.tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
