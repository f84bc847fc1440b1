"""A command to all subscribers of a topic, and exactly who carried it out.

Run it: `python examples/acknowledged_command.py`
"""

import asyncio

from anabranch import Message, Peer


async def carry_out(message: Message) -> None:
    """What a site does with a command."""
    await message.reply("done")


async def refuse(message: Message) -> None:
    """Another site declines."""
    await message.decline()


async def main() -> None:
    """One command, three sites, one of which is gone."""
    async with (
        Peer("control", listen="tcp://127.0.0.1:0", open=True) as control,
        Peer("north", join=control.addresses, open=True) as north,
        Peer("south", join=control.addresses, open=True) as south,
        Peer("west", join=control.addresses, open=True) as west,
    ):
        north.subscribe("grid/shed", callback=carry_out)
        south.subscribe("grid/shed", callback=refuse)
        west.subscribe("grid/shed")  # never looks at its messages
        await control.wait_for_subscribers("grid/shed", 3, timeout=5)
        harvest = await control.request("grid/shed", {"kw": 5}, expects=("done", "failed"), within=0.5)
        async for reply in harvest:
            print(f"{reply.site}: {reply.value}")
        result = await harvest
        print(f"complete: {result.complete}, declined: {result.declined}")
        for missing in result.missing:
            print(f"missing: {missing.site}, {missing.why}")


if __name__ == "__main__":
    asyncio.run(main())
