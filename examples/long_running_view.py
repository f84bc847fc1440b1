"""A view that stays open while sites answer when they like: snapshots in between, then the end.

Run it: `python examples/long_running_view.py`
"""

import asyncio

from anabranch import Peer


async def main() -> None:
    """Two sites vote, one of them late."""
    async with (
        Peer("office", listen="tcp://127.0.0.1:0", open=True) as office,
        Peer("early", join=office.addresses, open=True) as early,
        Peer("late", join=office.addresses, open=True) as late,
        early.subscribe("vote") as at_early,
        late.subscribe("vote") as at_late,
    ):
        await office.wait_for_subscribers("vote", 2, timeout=5)
        async with await office.request("vote", merge="histogram", within=3600.0) as view:
            await (await at_early.receive(timeout=5)).reply("yes")
            asked_late = await at_late.receive(timeout=5)
            while (seen := await view.snapshot(wait=0.2)).answered == 0:
                pass  # a snapshot takes a round trip
            print(f"so far: {seen.value}, outstanding: {seen.outstanding}, complete: {seen.complete}")
            await asked_late.reply("no")
            result = await view
            print(f"in the end: {sorted(result.value.items())}, complete: {result.complete}")


if __name__ == "__main__":
    asyncio.run(main())
