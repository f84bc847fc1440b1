"""Air surveillance: a radar's plots go to several agencies within 50 ms, also while a link is slow.

Everything in one program: `python examples/applications/air_surveillance.py`. By hand, one terminal each:

    python examples/applications/air_surveillance.py agency --name tower --listen tcp://127.0.0.1:7401
    python examples/applications/air_surveillance.py agency --name defence --join tcp://127.0.0.1:7401
    python examples/applications/air_surveillance.py radar --join tcp://127.0.0.1:7401

On the testbed, with the same traffic: `anabranch testbed run examples/scenarios/air-surveillance.toml`
"""

import argparse
import asyncio
import math
import time
from collections import Counter

from anabranch import Config, Message, Peer
from anabranch.tools.testbed.proxies import Conditions, Proxies

TOPIC = "air/radar/nyc"
DEADLINE_S = 0.050
PLOTS_PER_S = 50
FIXED = Config(neighbours_target=0)


def plot(number: int) -> dict[str, float]:
    """Where the aircraft is at a turn of the antenna: it flies a circle."""
    angle = number / 40
    return {"track": 7.0, "x_km": 80 * math.cos(angle), "y_km": 80 * math.sin(angle), "altitude_m": 9500.0}


async def radar(peer: Peer, agencies: int, seconds: float) -> int:
    """Publish plots at a steady pace, each to be used within its deadline; how many."""
    plots = await peer.publisher(TOPIC, deadline=DEADLINE_S)
    await peer.wait_for_subscribers(TOPIC, agencies, timeout=30)
    begin, number = time.monotonic(), 0
    while (due := number / PLOTS_PER_S) < seconds:
        await asyncio.sleep(max(0.0, begin + due - time.monotonic()))
        await plots.put(plot(number))
        number += 1
    return number


class Agency:
    """Follows the aircraft; counts what came, what came too late, and by which way."""

    def __init__(self, peer: Peer) -> None:
        self.name = str(peer.name)
        self.late = 0
        self.paths: Counter[tuple[str, ...]] = Counter()
        self._subscription = peer.subscribe("air/radar/*", callback=self._take)

    @property
    def received(self) -> int:
        """Plots that came."""
        return self.paths.total()

    def _take(self, message: Message) -> None:
        if message.late:
            self.late += 1
        if message.path not in self.paths:
            print(f"{self.name}: plots come by {' > '.join(message.path)}", flush=True)
        self.paths[message.path] += 1

    def __str__(self) -> str:
        return f"{self.name}: {self.received} plots, {self.late} of them late"


async def everything(seconds: float) -> None:
    """Four peers and the links between them; the radar's direct link to the tower gets slow halfway."""
    links = {("radar", "tower"): 10, ("radar", "relay"): 12, ("relay", "tower"): 12, ("relay", "defence"): 15}
    names = ("tower", "defence", "relay", "radar")
    async with Proxies() as proxies:
        addresses = {}
        for pair, delay_ms in links.items():
            conditions = Conditions(delay_s=delay_ms / 1e3)
            addresses[pair] = await proxies.open("-".join(pair), there=conditions)
        peers: dict[str, Peer] = {}
        try:
            for name in names:
                mine = [address for (dials, _), address in addresses.items() if dials == name]
                peers[name] = Peer(name, listen="tcp://127.0.0.1:0", join=mine, config=FIXED, open=True)
                await peers[name].open()
            for pair in links:
                proxies.aim("-".join(pair), peers[pair[1]].addresses[0])
            agencies = [Agency(peers["tower"]), Agency(peers["defence"])]
            await peers["radar"].wait_for_peers(*names[:3], timeout=30)
            flying = asyncio.create_task(radar(peers["radar"], len(agencies), seconds))
            await asyncio.sleep(seconds / 2)
            print("the link between radar and tower gets slow: 120 ms", flush=True)
            proxies.shape("radar-tower", Conditions(delay_s=0.120))
            print(f"radar: {await flying} plots sent")
            await asyncio.sleep(0.5)
            for agency in agencies:
                print(agency)
        finally:
            for peer in peers.values():
                await peer.close()


async def alone(options: argparse.Namespace) -> None:
    """One role in this process."""
    name = options.name or options.role
    async with Peer(name, listen=options.listen, join=options.join, open=True) as peer:
        print(f"{name} listens on {peer.addresses[0]}", flush=True)
        if options.role == "radar":
            print(f"radar: {await radar(peer, options.agencies, options.seconds)} plots sent")
            return
        agency = Agency(peer)
        await asyncio.sleep(options.seconds)
        print(agency)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Air surveillance with a deadline of 50 ms.")
    parser.add_argument("role", nargs="?", choices=["everything", "radar", "agency"], default="everything")
    parser.add_argument("--name")
    parser.add_argument("--listen", default="tcp://127.0.0.1:0")
    parser.add_argument("--join", action="append", default=[], help="address of any peer of the mesh")
    parser.add_argument("--agencies", type=int, default=2, help="how many the radar waits for")
    parser.add_argument("--seconds", type=float, default=8.0)
    return parser.parse_args()


if __name__ == "__main__":
    chosen = parse_options()
    asyncio.run(everything(chosen.seconds) if chosen.role == "everything" else alone(chosen))
