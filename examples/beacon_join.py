"""Two peers that know no address of each other meet by UDP multicast beacons.

Run it: `python examples/beacon_join.py`, or with `--beacon udp://239.192.7.40:7400` on a whole network.
"""

import argparse
import asyncio

from anabranch import Peer


async def main(options: argparse.Namespace) -> None:
    """Neither peer has a `join` address; both name the same group."""
    async with (
        Peer("alice", listen=options.listen, beacon=options.beacon, open=True) as alice,
        Peer("bob", listen=options.listen, beacon=options.beacon, open=True) as bob,
        bob.subscribe("news") as news,
    ):
        await alice.wait_for_links(1, timeout=10)
        print("alice found bob")
        await alice.wait_for_subscribers("news", timeout=5)
        await alice.put("news", "we met")
        print((await news.receive(timeout=5)).payload)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Join a mesh by multicast beacons.")
    parser.add_argument("--listen", default="tcp://127.0.0.1:0")
    parser.add_argument("--beacon", default="udp://lo;239.192.7.40:7400", help="udp://[INTERFACE;]GROUP:PORT")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(parse_options()))
