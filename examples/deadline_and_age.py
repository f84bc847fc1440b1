"""Each message knows its age; a publisher's deadline marks those that arrived later than that.

Run it: `python examples/deadline_and_age.py`
"""

import asyncio

from anabranch import Peer


async def main() -> None:
    """Two publishers of one topic: one deadline that can be met, one that cannot."""
    async with (
        Peer("alice", listen="tcp://127.0.0.1:0", open=True) as alice,
        Peer("bob", join=alice.addresses, open=True) as bob,
        bob.subscribe("air/radar/*") as plots,
    ):
        relaxed = await alice.publisher("air/radar/nyc", deadline=5.0)
        impossible = await alice.publisher("air/radar/nyc", deadline=0.000_001)
        await alice.wait_for_subscribers("air/radar/nyc", timeout=5)
        await relaxed.put("within five seconds")
        await impossible.put("within a microsecond")
        for _ in range(2):
            plot = await plots.receive(timeout=5)
            verdict = "late" if plot.late else "in time"
            print(f"{plot.payload}: {verdict} after {plot.age * 1e3:.2f} ms")


if __name__ == "__main__":
    asyncio.run(main())
