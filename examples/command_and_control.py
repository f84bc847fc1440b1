"""Command and control: tell all sites that match, and harvest what happened. Ten peers, each a process.

Run it: `python examples/command_and_control.py`
"""

import asyncio
import contextlib
import sys

from anabranch import Message, Peer

NUMBERS = range(1, 10)
BUSY = "region = 'north' and load > 0.4"
CALM = "region = 'north' and not (load > 0.4)"


async def site(number: int, address: str) -> None:
    """Carries out what it is told, and answers what came of it; `end` ends it."""
    attributes = {"region": "north" if number % 2 else "south", "load": number / 10, "manual": number == 9}
    ended = asyncio.Event()
    async with Peer(f"s{number}", join=[address], open=True) as peer:
        peer.set_attributes(attributes)

        async def carry_out(message: Message) -> None:
            if message.payload == "shed" and attributes["manual"]:
                await message.reply("refused")
            elif message.payload == "shed":
                attributes["load"] = round(attributes["load"] - 0.5, 1)
                peer.set_attributes(attributes)
                await message.reply("shed")
            elif message.payload == "end":
                await message.reply("ended")
                ended.set()
            else:
                await message.reply(attributes["load"])

        peer.subscribe("@site", callback=carry_out)
        await ended.wait()


async def control() -> None:
    """Selects sites by what they are at that moment."""
    async with contextlib.AsyncExitStack() as stack:
        peer = await stack.enter_async_context(Peer("control", listen="tcp://127.0.0.1:0", open=True))
        for number in NUMBERS:
            command = (sys.executable, __file__, str(number), peer.addresses[0])
            process = await asyncio.create_subprocess_exec(*command)
            stack.push_async_callback(end, process)
        await peer.wait_for_subscribers("@site", len(NUMBERS), to="exists(load)", timeout=30)

        result = await (await peer.request(None, "shed", to=BUSY, merge="histogram"))
        print(f"asked {', '.join(result.asked)}: {dict(sorted(result.value.items()))}")

        calm = await peer.wait_for_subscribers("@site", 4, to=CALM, timeout=10)
        print(f"calm now: {', '.join(calm)}; still busy: {', '.join(peer.subscribers('@site', to=BUSY))}")

        async for reply in await peer.request(None, "load", to="manual or load < 0.1"):
            print(f"{reply.site} has load {reply.value}")

        result = await (await peer.request(None, "end", to="exists(load)", merge="count"))
        print(f"ended: {result.value}, complete: {result.complete}")


async def end(process: asyncio.subprocess.Process) -> None:
    """Wait for a site to end; without having been told it does not."""
    try:
        await asyncio.wait_for(process.wait(), 10)
    except TimeoutError:
        process.terminate()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(site(int(sys.argv[1]), sys.argv[2]) if len(sys.argv) > 1 else control())
