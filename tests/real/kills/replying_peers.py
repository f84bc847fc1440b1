"""Some peers of the mesh in which relays are killed: each answers requests after a moment, once.

Arguments: one JSON object with `peers` (name, listen) and `join` (addresses).
"""

import asyncio
import json
import random
import sys
from contextlib import AsyncExitStack

from anabranch import Config, Peer
from anabranch.transport.loops import run
from anabranch.transport.message import Message


async def main() -> None:
    settings = json.loads(sys.argv[1])
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        for name, listen in settings["peers"]:
            peer = await stack.enter_async_context(
                Peer(
                    name, listen=listen, join=settings["join"], config=Config(neighbours_target=0), open=True
                )
            )
            rng = random.Random(name)

            def answer(message: Message, name: str = name, rng: random.Random = rng) -> None:
                loop.call_later(rng.uniform(0.0, 0.15), message.reply, [name, message.payload])

            peer.subscribe("q", callback=answer)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await loop.run_in_executor(None, sys.stdin.read)


run(main())
