"""A question to every site, and one merged answer: a histogram, a mean, and a merge of one's own.

Run it: `python examples/distributed_query.py`
"""

import asyncio
from contextlib import AsyncExitStack

from anabranch import Message, Peer

READINGS = {"north": 18, "south": 24, "west": 18}


def widest(a: list[int], b: list[int]) -> list[int]:
    """A merge of one's own: from the smallest to the largest."""
    return [min(a[0], b[0]), max(a[1], b[1])]


async def main() -> None:
    """Three sites answer three questions."""
    async with AsyncExitStack() as stack:
        control = await stack.enter_async_context(Peer("control", listen="tcp://127.0.0.1:0", open=True))
        for name, reading in READINGS.items():
            site = await stack.enter_async_context(Peer(name, join=control.addresses, open=True))
            site.register_merge("span", widest, lift=lambda value: [value, value])

            async def answer(message: Message, reading: int = reading) -> None:
                await message.reply(reading)

            site.subscribe("temperature", callback=answer)
        control.register_merge("span", widest, lift=lambda value: [value, value])
        await control.wait_for_subscribers("temperature", len(READINGS), timeout=5)
        for merge in ("histogram", "mean", "span"):
            result = await (await control.request("temperature", merge=merge, expects=int))
            print(f"{merge}: {result.value} of {result.answered}, complete: {result.complete}")


if __name__ == "__main__":
    asyncio.run(main())
