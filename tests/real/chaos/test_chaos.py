"""Peers of a mesh under load are killed, paused, restarted: the others go on, and all is accounted for."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest
from chaos_judge import BACK_S, judge, judge_end
from chaos_mesh import NAMES, Mesh
from chaos_messages import Report

LONG = bool(os.environ.get("LONG_TESTS"))
"""Every harm to every peer, and larger numbers; some minutes."""
SEED = int(os.environ.get("CHAOS_SEED", "1"))
NAP_S = 0.3
PAUSE_S = 3.0
"""Long enough to be given up."""
STORM_KILLS = 60 if LONG else 20
FILES_SLACK = 12
"""Descriptors that a peer may hold more than before: a link it dialled has more than one it accepted, and a
dial may be under way."""
LINE = [("p1", "p2"), ("p2", "p3"), ("p3", "p4"), ("p4", "p5")]
RING = [*LINE, ("p1", "p5")]
TOPOLOGIES = {"full": None, "ring": RING, "line": LINE}

pytestmark = [
    pytest.mark.alone,
    pytest.mark.timeout(600 if LONG else 90),
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at processes in /proc"),
]


@pytest.mark.parametrize("topology", ["full", "ring", "line"] if LONG else ["full", "ring"])
def test_survivors_go_on_and_victims_come_back(tmp_path: Path, topology: str) -> None:
    rng = Random(SEED)
    victims = rng.sample(NAMES, len(NAMES))

    async def harm(mesh: Mesh) -> None:
        for victim in victims if LONG else victims[:2]:
            killed = await mesh.kill(victim)
            await asyncio.sleep(rng.uniform(0.0, 1.5))
            await mesh.restart(killed)
            await mesh.until_back(killed, BACK_S)
        for victim in victims if LONG else victims[2:]:
            await mesh.until_back(await mesh.pause(victim, NAP_S), BACK_S)
        for victim in victims if LONG else victims[3:4]:
            await mesh.until_back(await mesh.pause(victim, PAUSE_S), BACK_S)

    _play(Mesh(tmp_path, TOPOLOGIES[topology], seed=SEED), harm)


def test_a_peer_that_is_killed_again_and_again_disturbs_nobody(tmp_path: Path) -> None:
    rng = Random(SEED)
    victim = rng.choice(NAMES)

    async def harm(mesh: Mesh) -> None:
        others = [name for name in NAMES if name != victim]
        files = {name: mesh.open_files(name) for name in others}
        killed = [await mesh.kill(victim)]
        for _ in range(STORM_KILLS - 1):
            await mesh.spawn(victim)
            await asyncio.sleep(rng.uniform(0.0, 0.8))
            killed.append(await mesh.kill(victim))
        await mesh.restart(killed[-1])
        await mesh.until_back(killed[-1], BACK_S)
        for storm in killed:
            storm.end, storm.back = killed[-1].end, killed[-1].back
        await mesh.until_linked(BACK_S)
        more = {name: mesh.open_files(name) - files[name] for name in others}
        assert all(count <= FILES_SLACK for count in more.values()), more

    _play(Mesh(tmp_path, seed=SEED), harm)


def test_no_half_of_a_large_payload_is_delivered_when_its_publisher_dies(tmp_path: Path) -> None:
    rng = Random(SEED)
    mesh = Mesh(tmp_path, RING, seed=SEED, rate=50)
    large = rng.choice(NAMES)
    mesh.rates[large], mesh.payload_bytes[large] = 8, 3 * 1024 * 1024

    async def harm(mesh: Mesh) -> None:
        relay = rng.choice(mesh.neighbours(large))
        for victim in (large, relay, large) * (5 if LONG else 1):
            await asyncio.sleep(rng.uniform(0.0, 0.3))
            killed = await mesh.kill(victim)
            await mesh.restart(killed)
            await mesh.until_back(killed, BACK_S)

    _play(mesh, harm)


def _play(mesh: Mesh, harm: Callable[[Mesh], Awaitable[None]]) -> None:
    """Run a mesh, do the harm, and judge what the peers report and what they leave behind."""

    async def play() -> dict[str, Report]:
        async with mesh:
            await mesh.until_flowing(time.monotonic(), BACK_S)
            await harm(mesh)
            mesh.hush()
            reports = await mesh.until_complete(BACK_S)
            await mesh.finish()
            return reports

    assert judge(mesh, asyncio.run(play())) == []
    assert judge_end(mesh) == []
    assert [pid for pid in mesh.pids if Path(f"/proc/{pid}").exists()] == []
