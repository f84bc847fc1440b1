"""Persistent publishers and durable subscriptions in five processes that are killed at random and restarted.

LONG_TESTS=1 makes it 100,000 messages and some ten minutes at most; -s shows how far it is.
"""

import asyncio
import json
import os
import random
import socket
import sys
import time
from pathlib import Path

import pytest
from kill_judge import Tale, is_over, judge, read

pytestmark = pytest.mark.alone

LONG = bool(os.environ.get("LONG_TESTS"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
NAMES = ["p1", "p2", "p3", "p4", "p5"]
COUNT = 20_000 if LONG else 400
"""Messages of each."""
KILLS_MIN = 25 if LONG else 5
KILL_EVERY_S = (0.5, 2.5) if LONG else (1.0, 2.0)
LIMIT_S = 900 if LONG else 60
READERS = {name: [NAMES[(index + 1) % 5], NAMES[(index + 2) % 5]] for index, name in enumerate(NAMES)}
"""By publisher: who reads it durably."""


class Process:
    """One peer in its own process, started again after each kill."""

    def __init__(self, name: str, port: int, ports: dict[str, int], folder: Path) -> None:
        self.notes = folder / f"{name}.notes"
        self.errors = folder / f"{name}.errors"
        index = NAMES.index(name)
        self._settings = {
            "name": name,
            "listen": f"tcp://127.0.0.1:{port}",
            "join": [f"tcp://127.0.0.1:{ports[NAMES[(index + step) % 5]]}" for step in (1, 2)],
            "neighbours": 0,
            "notes": str(self.notes),
            "store": str(folder / name),
            "count": COUNT,
            "patterns": [f"feed/{other}" for other in NAMES if name in READERS[other]],
            "receivers": sorted(READERS[name]),
        }
        self._process: asyncio.subprocess.Process | None = None
        self.notes.touch()

    async def start(self) -> None:
        with self.errors.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(Path(__file__).parent / "kill_peer.py"),
                json.dumps(self._settings),
                stderr=errors,
                stdout=errors,
            )

    async def kill(self) -> None:
        process = self._process
        assert process is not None
        assert process.returncode is None, f"it ended by itself: {self.errors.read_text()[-2000:]}"
        process.kill()
        await process.wait()


@pytest.mark.timeout(LIMIT_S + 60)
def test_everything_put_arrives_once_in_order_while_all_are_killed_at_random(tmp_path: Path) -> None:
    kills, repeats, seconds = asyncio.run(kill_and_restart(tmp_path))
    print(f"{5 * COUNT} messages, {kills} kills, {repeats} unaccepted ones repeated, {seconds:.0f} s")
    assert kills >= KILLS_MIN


async def kill_and_restart(folder: Path) -> tuple[int, int, float]:
    rng = random.Random(SEED)
    ports = dict(zip(NAMES, free_ports(5), strict=True))
    processes = {name: Process(name, ports[name], ports, folder) for name in NAMES}
    began, kills = time.monotonic(), 0
    try:
        for each in processes.values():
            await each.start()
        while True:
            tales = {name: read(each.notes, name) for name, each in processes.items()}
            if kills >= KILLS_MIN and is_over(tales, READERS):
                break
            assert time.monotonic() - began < LIMIT_S, progress(tales)
            if LONG:
                print(f"{time.monotonic() - began:6.1f} s, {kills} kills: {progress(tales)}", flush=True)
            await asyncio.sleep(rng.uniform(*KILL_EVERY_S))
            if kills < KILLS_MIN or not all(tale.is_done for tale in tales.values()):
                victim = processes[rng.choice(NAMES)]
                await victim.kill()
                kills += 1
                await victim.start()
        return kills, judge(tales, READERS, COUNT), time.monotonic() - began
    finally:
        for each in processes.values():
            await each.kill()


def progress(tales: dict[str, Tale]) -> str:
    put = sum(len(tale.put) for tale in tales.values())
    got = sum(len(seen) for tale in tales.values() for seen in tale.got.values())
    return f"{put} of {5 * COUNT} put, {got} of {10 * COUNT} delivered"


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
