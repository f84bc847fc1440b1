"""Send to the sites that match, by what they are at that moment; filter by what messages carry.

Run it: `python examples/select_sites.py`
"""

import asyncio

from anabranch import Message
from anabranch.testing import mesh

SITES = {
    "harbour": {"region": "north", "load": 0.95, "tags": ["crane", "rail"]},
    "mill": {"region": "north", "load": 0.35, "tags": ["rail"]},
    "mine": {"region": "south", "load": 0.90, "tags": ["crane"]},
}


async def main() -> None:
    """One control room, three sites."""
    arrived = asyncio.Event()

    def show(message: Message) -> None:
        print(f"{message.payload} (to: {message.to})")
        arrived.set()

    async with mesh("control", *SITES) as peers:
        control = peers["control"]
        for name, attributes in SITES.items():
            peers[name].set_attributes(attributes)
            peers[name].subscribe("@site", callback=show)

        for to in ("region = 'north' and load > 0.8", "tags superset {'crane'} and not (region = 'north')"):
            receivers = await control.wait_for_subscribers("@site", to=to, timeout=5)
            await control.put(None, f"for {', '.join(receivers)}", to=to)
            await arrived.wait()
            arrived.clear()

        peers["mill"].set_attributes({**SITES["mill"], "load": 0.99})
        await control.wait_for_subscribers("@site", 2, to="region = 'north' and load > 0.8", timeout=5)
        print("the mill got busy: now", control.subscribers("@site", to="region = 'north' and load > 0.8"))

        async with peers["mine"].subscribe("prices", where="change >= 0.1") as prices:
            await control.wait_for_subscribers("prices", timeout=5)
            for change in (0.02, 0.15):
                await control.put("prices", change, attributes={"change": change})
            print("the mine hears of", (await prices.receive(timeout=5)).payload)


if __name__ == "__main__":
    asyncio.run(main())
