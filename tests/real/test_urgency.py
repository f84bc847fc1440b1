"""An urgent flow beside a bulk flow that fills the same link: real processes, a link of limited rate.

URGENCY_SECONDS=60 makes it as long as one likes; the default is short.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import pytest

from anabranch import Config, Peer
from anabranch.tools.testbed.proxies import Conditions
from anabranch.tools.testbed.proxy_process import ProxyProcess
from anabranch.transport.loops import run

pytestmark = pytest.mark.alone

SECONDS = float(os.environ.get("URGENCY_SECONDS", "4"))
RATE_BYTES_S = 2_000_000
BULK_BYTES = 20_000
URGENT_PER_S = 100
DEADLINE_S = 0.2
ON_TIME = 0.999
LINE_MAX_BYTES = 64 * 1024 * 1024
"""The receiver tells how long each message took, in one line."""
CONFIG = Config(neighbours_target=0)


def test_an_urgent_flow_keeps_its_deadline_beside_a_bulk_flow_that_fills_the_link(tmp_path: Path) -> None:
    run(_publish(tmp_path))


async def _publish(tmp_path: Path) -> None:
    proxies = await ProxyProcess.start(tmp_path / "proxies")
    try:
        async with Peer("a", listen="tcp://127.0.0.1:0", config=CONFIG) as peer:
            slow = Conditions(delay_s=0.005, rate_bytes_s=RATE_BYTES_S)
            address = await proxies.open("a-b", target=peer.addresses[0], there=slow, back=slow)
            receiver = await asyncio.create_subprocess_exec(
                sys.executable, __file__, address, stdout=asyncio.subprocess.PIPE, limit=LINE_MAX_BYTES
            )
            try:
                found = await _flows(peer, receiver)
            finally:
                if receiver.returncode is None:
                    receiver.kill()
                    await receiver.wait()
    finally:
        await proxies.child.end()
    took = sorted(found["urgent_s"])
    print(f"{len(took)} urgent, p50 {took[len(took) // 2]:.4f} s, worst {took[-3:]}, bulk {found['bulk']}")
    on_time = sum(each <= DEADLINE_S for each in took)
    assert on_time >= ON_TIME * found["sent"]
    assert found["bulk"] > 0.6 * RATE_BYTES_S / BULK_BYTES * SECONDS, "the bulk flow fills the link"


async def _flows(peer: Peer, receiver: asyncio.subprocess.Process) -> dict[str, float | list[float]]:
    await peer.wait_for_subscribers("urgent", timeout=20)
    await peer.wait_for_subscribers("bulk", timeout=20)
    bulk, urgent = await peer.publisher("bulk"), await peer.publisher("urgent", deadline=DEADLINE_S)
    filling = asyncio.create_task(_fill(bulk))
    await asyncio.sleep(1.0)  # the link is full before the urgent flow begins
    sent = 0
    begin = time.monotonic()
    while sent < SECONDS * URGENT_PER_S:
        await asyncio.sleep(max(0.0, begin + sent / URGENT_PER_S - time.monotonic()))
        await urgent.put(time.monotonic())
        sent += 1
    filling.cancel()
    await asyncio.sleep(2 * DEADLINE_S)
    last = await peer.publisher("end", deadline=10)
    await last.put(None)
    assert receiver.stdout is not None
    line = await asyncio.wait_for(receiver.stdout.readline(), 30)
    return json.loads(line) | {"sent": sent}


async def _fill(bulk) -> None:  # type: ignore[no-untyped-def]
    payload = bytes(BULK_BYTES)
    while True:
        await bulk.put(payload)


async def _receive(address: str) -> None:
    """The other process: how long urgent messages took, by the clock that both processes share."""
    took: list[float] = []
    count = 0
    async with Peer("b", join=[address], config=CONFIG) as peer:
        done = peer.subscribe("end")
        peer.subscribe("urgent", callback=lambda message: took.append(time.monotonic() - message.payload))

        def note(_: object) -> None:
            nonlocal count
            count += 1

        peer.subscribe("bulk", callback=note)
        await done.receive(timeout=SECONDS + 300)
    sys.stdout.write(json.dumps({"urgent_s": took, "bulk": count}) + "\n")


if __name__ == "__main__":
    run(_receive(sys.argv[1]))
