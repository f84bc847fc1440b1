"""Looks into a mesh from outside: attaches as a light client and asks a peer for its own view.

Run it: `python examples/inspect_mesh.py`; it makes three peers of its own to look at.
Look at yours: `python examples/inspect_mesh.py --join tcp://127.0.0.1:7400`
"""

import argparse
import asyncio
import contextlib
from typing import Any

from anabranch import Client, Peer


async def main(options: argparse.Namespace) -> None:
    """Print links, topics and counters as the peer at the join address sees them."""
    async with contextlib.AsyncExitStack() as stack:
        join = options.join or await start_three_peers(stack)
        client = await stack.enter_async_context(Client("inspector", join=join, open=True))
        await client.wait_for_links(1, timeout=5)
        view: dict[str, Any] = await client.inspect(timeout=5)
    print(f"{view['peer']} ({view['variant']})")
    for link in view["links"]:
        print(f"  link to {link['peer']}: {link['state']}, {link['role']}, {link['delay_ms']} ms")
    for peer, patterns in view["peers"].items():
        print(f"  {peer} wants {', '.join(patterns) or 'nothing'}")
    print(f"  published {view['counters'].get('published', 0)}")


async def start_three_peers(stack: contextlib.AsyncExitStack) -> list[str]:
    """A mesh to look at; the address of its first peer."""
    first = await stack.enter_async_context(Peer("first", listen="tcp://127.0.0.1:0", open=True))
    for name in ("second", "third"):
        peer = await stack.enter_async_context(
            Peer(name, listen="tcp://127.0.0.1:0", join=first.addresses, open=True)
        )
        peer.subscribe(f"to/{name}")
        await first.wait_for_subscribers(f"to/{name}", timeout=5)
    await first.put("to/second", "something to count")
    return first.addresses


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Print a peer's view of its mesh.")
    parser.add_argument("--join", action="append", default=[], help="address of the peer to ask")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(parse_options()))
