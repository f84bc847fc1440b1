"""One peer process of the memory tests: idles, sends or receives, and prints its resident memory as JSON."""

import asyncio
import json
import os
import sys
from pathlib import Path

from anabranch import Peer
from anabranch.transport.loops import run

TOPIC = "memory/flat"
PAYLOAD = b"x" * 64
IDLE_S = 3.0
SAMPLES = 10
QUEUE_MAX = 16_384
"""Small, so that what waits does not hide what leaks."""


def tell(**event: object) -> None:
    """To the test."""
    print(json.dumps(event), flush=True)


def resident_bytes() -> int:
    """What of this process is in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def idle(peer: Peer, links: int) -> None:
    """With this many links, and nothing to do."""
    await peer.wait_for_links(links, timeout=10)
    await asyncio.sleep(IDLE_S)
    tell(resident=[resident_bytes()])


async def send(peer: Peer, messages: int) -> None:
    """As fast as it goes."""
    samples = []
    publisher = await peer.publisher(TOPIC)
    await peer.wait_for_subscribers(TOPIC, timeout=10)
    for number in range(1, messages + 1):
        await publisher.put(PAYLOAD)
        if number % (messages // SAMPLES) == 0:
            samples.append(resident_bytes())
    tell(resident=samples, lost=0)


async def receive(peer: Peer, messages: int) -> None:
    """To the last of them."""
    samples = []
    async with peer.subscribe(TOPIC, overflow="block", queue_max=QUEUE_MAX) as subscription:
        async for message in subscription:
            if (message.sequence + 1) % (messages // SAMPLES) == 0:
                samples.append(resident_bytes())
            if message.sequence + 1 == messages:
                break
        tell(resident=samples, lost=peer.counters.get("lost", 0) + subscription.dropped)


async def main(role: str, count: int, log_dir: str, identity: str, *join: str) -> None:
    """Do it, then wait for the end of stdin."""
    name = Path(identity).name or f"{role}-{os.getpid()}"
    listen = "tcp://127.0.0.1:0"
    async with Peer(
        name, listen=listen, join=join, log_dir=log_dir, identity=identity or None, open=not identity
    ) as peer:
        tell(address=peer.addresses[0])
        await {"idle": idle, "send": send, "receive": receive}[role](peer, count)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    run(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
