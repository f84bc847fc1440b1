"""A light client has the API of a peer and no routing duties. When its peer dies, it moves to another.

Run it: `python examples/light_client.py`
"""

import asyncio

from anabranch import Client, Config, Peer


async def main() -> None:
    """Attach a client to one of two peers, close that peer, and go on publishing over the other."""
    config = Config.local()
    async with (
        Peer("south", listen="tcp://127.0.0.1:0", config=config, open=True) as south,
        Peer("north", listen="tcp://127.0.0.1:0", join=south.addresses, config=config, open=True) as north,
        Client("handset", join=[*north.addresses, *south.addresses], config=config, open=True) as handset,
        south.subscribe("calls/**") as calls,
    ):
        await handset.wait_for_subscribers("calls/1", timeout=5)
        await handset.put("calls/1", "attached")
        message = await calls.receive(timeout=5)
        print(f"{message.payload}: {' > '.join(message.path)}")

        await north.close()
        print("north is closed")
        async with asyncio.timeout(10):
            while (moved := calls.receive_nowait()) is None:
                await handset.put("calls/2", "moved")
                await asyncio.sleep(0.1)
        print(f"{moved.payload}: {' > '.join(moved.path)}")


if __name__ == "__main__":
    asyncio.run(main())
