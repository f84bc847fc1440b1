"""Resident memory of peers: small when idle, and flat however many messages pass."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from support_identities import Identities

PROGRAM = Path(__file__).with_name("memory_peer.py")
LONG = bool(os.environ.get("LONG_TESTS"))
MESSAGES = 10_000_000 if LONG else 1_000_000
IDLE_MAX_BYTES = 60_000_000
GROWTH_MAX_BYTES = 10_000_000
"""From the warm state to the end: a queue that was never so long before. A message kept costs far more."""
WARM = slice(2, 5)
"""Samples (tenths of the run) when queues and caches have been filled once."""
END = slice(-3, None)

pytestmark = [
    pytest.mark.timeout(400 if LONG else 60),
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read in /proc"),
]


@pytest.mark.parametrize("mesh", ["open", "secured"])
def test_an_idle_peer_with_two_links_is_small(mesh: str, tmp_path: Path) -> None:
    made = Identities(tmp_path) if mesh == "secured" else None
    with contextlib.ExitStack() as stack:
        children: list[subprocess.Popen[str]] = []
        addresses: list[str] = []
        for name in ("a", "b", "c"):
            identity = str(made.issue(name, 24.0)) if made else ""
            child = stack.enter_context(_child("idle", 2, tmp_path / "logs", *addresses, identity=identity))
            addresses.append(_heard(child)["address"])
            children.append(child)
        sizes = [_heard(child)["resident"][0] for child in children]
    assert all(10_000_000 < size < IDLE_MAX_BYTES for size in sizes), sizes


def test_memory_stays_flat_however_many_messages_pass(tmp_path: Path) -> None:
    with _child("receive", MESSAGES, tmp_path) as receiver:
        address = _heard(receiver)["address"]
        with _child("send", MESSAGES, tmp_path, address) as sender:
            _heard(sender)
            told = [_heard(sender), _heard(receiver)]
    for report in told:
        samples = report["resident"]
        assert report["lost"] == 0
        assert len(samples) == 10
        assert min(samples[END]) - min(samples[WARM]) < GROWTH_MAX_BYTES, samples


@contextlib.contextmanager
def _child(
    role: str, count: int, log_dir: Path, *join: str, identity: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """A peer process, ended in order."""
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), role, str(count), str(log_dir), identity, *join],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            yield child
            assert child.stdin is not None
            child.stdin.close()
            assert child.wait(timeout=10) == 0
        finally:
            child.kill()


def _heard(child: subprocess.Popen[str]) -> dict[str, Any]:
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line, f"ended with {child.wait()}"
    event: dict[str, Any] = json.loads(line)
    return event
