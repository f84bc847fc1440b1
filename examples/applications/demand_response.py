"""Demand response in a grid: the operator's price goes down to all households, their demand comes merged up.

Each district has a concentrator that adds its households up, so the operator gets one message per district.
Everything in one program: `python examples/applications/demand_response.py`. By hand, one terminal each:

    python examples/applications/demand_response.py operator --listen tcp://127.0.0.1:7401
    python examples/applications/demand_response.py concentrator --district north --join tcp://127.0.0.1:7401
    python examples/applications/demand_response.py household --district north --join tcp://127.0.0.1:7401

On the testbed, with the same traffic: `anabranch testbed run examples/scenarios/demand-response.toml`
"""

import argparse
import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from anabranch import Message, Peer

DISTRICTS = {"north": 3, "south": 4}
"""Households of each."""
BASE_KW = 2.0
PRICES = (0.20, 0.35, 0.80)


def demand(price: float) -> float:
    """What a household takes at a price per kWh."""
    return round(BASE_KW * 0.25 / max(price, 0.25), 3)


async def household(peer: Peer, district: str, name: str) -> None:
    """Answer every price with a demand, for its own district alone."""
    meter = await peer.publisher(f"grid/demand/{district}")
    async with peer.subscribe("grid/price") as prices:
        async for price in prices:
            step, value = price.payload  # type: ignore[misc] # what the operator puts
            await meter.put([step, name, demand(value)])


async def concentrator(peer: Peer, district: str, households: int) -> None:
    """Add up the demand of a district, and pass the sum on when all have answered."""
    total = await peer.publisher(f"grid/total/{district}")
    answers: dict[int, dict[str, float]] = {}
    async with peer.subscribe(f"grid/demand/{district}") as readings:
        async for reading in readings:
            step, name, kw = reading.payload  # type: ignore[misc] # what households put
            answers.setdefault(step, {})[name] = kw
            if len(answers[step]) == households:
                await total.put([step, district, households, sum(answers.pop(step).values())])


async def operator(peer: Peer, districts: int, households: int) -> None:
    """Raise the price step by step, and see what it does."""
    prices = await peer.publisher("grid/price")
    await peer.wait_for_subscribers("grid/price", households, timeout=30)
    async with peer.subscribe("grid/total/*") as totals:
        for topic in (f"grid/demand/{district}" for district in DISTRICTS):
            if districts == len(DISTRICTS):
                await peer.wait_for_subscribers(topic, timeout=30)
        for step, price in enumerate(PRICES):
            await prices.put([step, price])
            sums: dict[str, float] = {}
            while len(sums) < districts:
                message: Message = await totals.receive(timeout=20)
                of_step, district, count, kw = message.payload  # type: ignore[misc] # of concentrators
                if of_step == step:
                    sums[district] = kw
                    print(f"  {district}: {count} households take {kw:.1f} kW", flush=True)
            print(f"price {price:.2f}: {sum(sums.values()):.1f} kW in all", flush=True)


async def everything() -> None:
    """A small grid in one process: operator, a concentrator per district, households."""
    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        work: list[asyncio.Task[None]] = []

        async def start(name: str, join: list[str]) -> Peer:
            return await stack.enter_async_context(
                Peer(name, listen="tcp://127.0.0.1:0", join=join, open=True)
            )

        def run(role: Coroutine[Any, Any, None]) -> None:
            work.append(group.create_task(role))

        head = await start("operator", [])
        for district, count in DISTRICTS.items():
            middle = await start(f"{district}-concentrator", head.addresses)
            run(concentrator(middle, district, count))
            for number in range(count):
                name = f"{district}-{number}"
                run(household(await start(name, middle.addresses), district, name))
        await operator(head, len(DISTRICTS), sum(DISTRICTS.values()))
        for task in work:
            task.cancel()


async def alone(options: argparse.Namespace) -> None:
    """One role in this process, until Ctrl-C; the operator ends after its prices."""
    name = options.name or f"{options.district}-{options.role}"
    async with Peer(name, listen=options.listen, join=options.join, open=True) as peer:
        print(f"{name} listens on {peer.addresses[0]}", flush=True)
        if options.role == "operator":
            await operator(peer, options.districts, options.households)
        elif options.role == "concentrator":
            await concentrator(peer, options.district, options.households)
        else:
            await household(peer, options.district, name)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Prices down, demand merged up.")
    roles = ["everything", "operator", "concentrator", "household"]
    parser.add_argument("role", nargs="?", choices=roles, default="everything")
    parser.add_argument("--name")
    parser.add_argument("--listen", default="tcp://127.0.0.1:0")
    parser.add_argument("--join", action="append", default=[], help="address of any peer of the mesh")
    parser.add_argument("--district", default="north")
    parser.add_argument("--districts", type=int, default=1, help="how many the operator waits for")
    parser.add_argument("--households", type=int, default=1, help="how many answer")
    return parser.parse_args()


if __name__ == "__main__":
    chosen = parse_options()
    asyncio.run(everything() if chosen.role == "everything" else alone(chosen))
