"""Publishes readings until it has sent them all. Start `subscriber.py` first, and join the address it prints.

Run it: `python examples/publisher.py --join tcp://127.0.0.1:7400`
"""

import argparse
import asyncio

from anabranch import Peer


async def main(options: argparse.Namespace) -> None:
    """Wait for a subscriber, then publish at a steady pace."""
    async with Peer(options.name, listen=options.listen, join=options.join, open=True) as peer:
        print(f"listening on {peer.addresses[0]}", flush=True)
        readings = await peer.publisher(options.topic)
        try:
            subscribers = await peer.wait_for_subscribers(options.topic, timeout=options.wait)
        except TimeoutError:
            print(f"nobody subscribed to {options.topic} within {options.wait} s")
            return
        print(f"publishing to {', '.join(subscribers)}", flush=True)
        for number in range(options.count):
            await readings.put({"number": number, "celsius": 20 + number / 10})
            await asyncio.sleep(options.interval)
        print(f"published {options.count} messages")


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Publish readings to one topic.")
    parser.add_argument("--name", default="publisher")
    parser.add_argument("--listen", default="tcp://127.0.0.1:0")
    parser.add_argument("--join", action="append", default=[], help="address of any peer of the mesh")
    parser.add_argument("--topic", default="sensors/attic/temperature")
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--interval", type=float, default=0.2, help="seconds between two messages")
    parser.add_argument("--wait", type=float, default=5, help="seconds to wait for a subscriber")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(parse_options()))
