"""Two peers in one process share nothing: each has its own links, settings, subscriptions and counters.

Run it: `python examples/two_peers_one_process.py`
"""

import asyncio
import tempfile
from pathlib import Path

from anabranch import ClosedError, Config, Peer


async def main() -> None:
    """Link them over ipc, look at both, close one: the other goes on."""
    with tempfile.TemporaryDirectory() as directory:
        address = f"ipc://{Path(directory) / 'alice'}"
        alice = Peer("alice", listen=address, config=Config.local(), open=True)
        bob = Peer("bob", join=address, config=Config.local(payload_max_bytes=2**20), open=True)
        async with alice, bob:
            async with bob.subscribe("jobs/*") as jobs:
                await alice.wait_for_subscribers("jobs/1", timeout=5)
                await alice.put("jobs/1", b"first")
                await jobs.receive(timeout=5)
            print(f"alice published {alice.counters['published']}, bob published {bob.counters['published']}")
            print(f"alice delivered {alice.counters['delivered']}, bob delivered {bob.counters['delivered']}")

            await bob.close()
            try:
                await bob.put("jobs/2", b"second")
            except ClosedError as error:
                print(error)
            async with alice.subscribe("jobs/*") as own:
                await alice.put("jobs/2", b"second")
                print(f"alice still works: {(await own.receive(timeout=5)).payload!r}")


if __name__ == "__main__":
    asyncio.run(main())
