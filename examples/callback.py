"""Callbacks instead of a loop: plain or async, called one message at a time. A failing one is counted.

Run it: `python examples/callback.py`
"""

import asyncio

from anabranch import Message, Peer


async def main() -> None:
    """One subscription per kind of callback, both for the same topics."""
    done = asyncio.Event()

    def show(message: Message) -> None:
        print(f"plain: {message.topic} = {message.payload}")

    async def show_and_count(message: Message) -> None:
        await asyncio.sleep(0)  # the next message waits until this one is dealt with
        print(f"async: {message.topic} = {message.payload}")
        if message.sequence == 2:
            done.set()

    async with (
        Peer("alice", listen="tcp://127.0.0.1:0", open=True) as alice,
        Peer("bob", join=alice.addresses, open=True) as bob,
    ):
        bob.subscribe("counter", callback=show)
        bob.subscribe("counter", callback=show_and_count)
        await alice.wait_for_subscribers("counter", timeout=5)
        for number in range(3):
            await alice.put("counter", number)
        async with asyncio.timeout(5):
            await done.wait()
        print(f"callback errors: {bob.counters['callback_errors']}")


if __name__ == "__main__":
    asyncio.run(main())
