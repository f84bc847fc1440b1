"""Prints what arrives, until it has seen enough or the time is over.

Run it: `python examples/subscriber.py --listen tcp://127.0.0.1:7400`
"""

import argparse
import asyncio

from anabranch import Peer


async def main(options: argparse.Namespace) -> None:
    """Subscribe to a pattern and iterate."""
    async with Peer(options.name, listen=options.listen, join=options.join, open=True) as peer:
        print(f"listening on {peer.addresses[0]}", flush=True)
        received = 0
        try:
            async with asyncio.timeout(options.seconds), peer.subscribe(options.pattern) as messages:
                async for message in messages:
                    print(f"{message.topic} from {message.origin}: {message.payload}", flush=True)
                    received += 1
                    if received == options.count:
                        break
        except TimeoutError:
            print(f"{options.seconds} s are over")
        print(f"received {received} messages")


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Print messages whose topic matches a pattern.")
    parser.add_argument("--name", default="subscriber")
    parser.add_argument("--listen", default="tcp://127.0.0.1:0")
    parser.add_argument("--join", action="append", default=[], help="address of any peer of the mesh")
    parser.add_argument("--pattern", default="sensors/**")
    parser.add_argument("--count", type=int, default=5, help="end after this many messages")
    parser.add_argument("--seconds", type=float, default=10, help="end after this long")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(parse_options()))
