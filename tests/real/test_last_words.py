"""A neighbour that publishes and leaves while this peer's loop is busy: its last words must still be read."""

import asyncio
import time

from anabranch import Peer
from anabranch.blocking import Client
from anabranch.transport.loops import run


def test_the_last_words_of_a_neighbour_that_left_are_read() -> None:
    async def scene() -> object:
        async with Peer("a", listen="tcp://127.0.0.1:0") as a, a.subscribe("x") as messages:
            b = Client("b", join=a.addresses)
            await asyncio.to_thread(b.open)
            await asyncio.to_thread(lambda: b.wait_for_subscribers("x", timeout=10))
            b.put("x", "last words")  # from here on the loop of a stands still
            b.close()
            time.sleep(0.3)  # noqa: ASYNC251 - the point is that the loop stands still
            a._shell.wiring.read_all()  # as a due timer does: the monitor first
            return (await messages.receive(3)).payload

    assert run(scene()) == "last words"
