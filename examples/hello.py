"""The smallest mesh: one peer subscribes, another publishes, both in this file.

Run it: `python examples/hello.py`
"""

import asyncio

from anabranch import Peer


async def main() -> None:
    """Link two peers, send one message, print it."""
    async with (
        Peer("alice", listen="tcp://127.0.0.1:0", open=True) as alice,
        Peer("bob", join=alice.addresses, open=True) as bob,
        bob.subscribe("greetings/*") as greetings,
    ):
        await alice.wait_for_subscribers("greetings/world", timeout=5)
        await alice.put("greetings/world", {"text": "hello"})
        message = await greetings.receive(timeout=5)
        print(f"{message.origin} says {message.payload} on {message.topic}")


if __name__ == "__main__":
    asyncio.run(main())
