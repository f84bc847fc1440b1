"""What a full queue does: drop the oldest, drop the newest, or hold the sender back.

Run it: `python examples/overflow_policies.py`
"""

import asyncio

from anabranch import Peer, Subscription

QUEUE_MAX = 100
COUNT = 1000


async def main() -> None:
    """The same messages to three subscriptions; two of them are not read until the end."""
    async with (
        Peer("alice", listen="tcp://127.0.0.1:0", open=True) as alice,
        Peer("bob", join=alice.addresses, open=True) as bob,
    ):
        oldest = bob.subscribe("numbers", queue_max=QUEUE_MAX, overflow="drop_oldest")
        newest = bob.subscribe("numbers", queue_max=QUEUE_MAX, overflow="drop_newest")
        blocking = bob.subscribe("numbers", queue_max=QUEUE_MAX, overflow="block")
        reading = asyncio.create_task(read_all(blocking))
        await alice.wait_for_subscribers("numbers", timeout=5)
        numbers = await alice.publisher("numbers")
        for number in range(COUNT):
            await numbers.put(number)
            if number % 50 == 49:
                await asyncio.sleep(0.002)
        async with asyncio.timeout(10):
            read = await reading
        print(f"drop_oldest kept {span(oldest)}, dropped {oldest.dropped}")
        print(f"drop_newest kept {span(newest)}, dropped {newest.dropped}")
        print(f"block gave {read[0]} to {read[-1]}, dropped {blocking.dropped}")
        print(f"counter dropped.subscription_full: {bob.counters['dropped.subscription_full']}")


async def read_all(subscription: Subscription) -> list[object]:
    """Read with a short pause now and then, as a busy application does."""
    payloads: list[object] = []
    while len(payloads) + subscription.dropped < COUNT:
        payloads.append((await subscription.receive(timeout=5)).payload)
        if len(payloads) % 100 == 0:
            await asyncio.sleep(0.005)
    return payloads


def span(subscription: Subscription) -> str:
    """The first and the last message that wait."""
    payloads = []
    while (message := subscription.receive_nowait()) is not None:
        payloads.append(message.payload)
    return f"{payloads[0]} to {payloads[-1]}"


if __name__ == "__main__":
    asyncio.run(main())
