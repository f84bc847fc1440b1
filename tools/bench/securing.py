"""What security costs: the same measurements in an open mesh and in a secured one, in turns."""

import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from anabranch import Config, Peer
from anabranch.security.authority import Authority, key_pem
from anabranch.security.files import write_private, write_public
from anabranch.tools.bench import scenarios
from anabranch.tools.bench.scenarios import Options, Row
from anabranch.tools.bench.summary import median_rows, ratios
from anabranch.transport.loops import run

NAMES = ("sender", "receiver", "relay", "ping", "echo", "old", "new")
MODES = ("open", "secured")
RTT_BYTES = 64
VALUES = {"throughput": "messages_per_second", "rtt": "p50_us", "join": "p50_ms"}
"""What is compared, by operation."""
Step = tuple[str, Callable[..., Row], tuple[Any, ...]]
_JOIN_TIMEOUT_S = 10.0


@contextmanager
def identities() -> Iterator[str]:
    """A directory with an identity for every peer of these measurements; gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="anabranch-bench-identities-"))
    try:
        authority = Authority.create(directory / "authority", "bench.local", 2, time.time())
        for name in NAMES:
            issue(authority, name, directory / name)
        yield str(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def issue(authority: Authority, name: str, place: Path) -> None:
    """An identity for a day."""
    from cryptography.hazmat.primitives.serialization import Encoding

    holder, key = authority.issue(name, 24)
    assert key is not None
    place.mkdir(mode=0o700)
    write_private(place / "key.pem", key_pem(key))
    write_public(place / "certificate.pem", holder.certificate.public_bytes(Encoding.PEM))
    write_public(place / "authority.pem", authority.certificate.public_bytes(Encoding.PEM))


def throughput(options: Options, mode: str, size: int, path: str) -> Row:
    """Messages per second over one link, or through a relay."""
    row = scenarios.relay(options, path, size)
    return {**row, "operation": "throughput", "path": path, "mode": mode}


def rtt(options: Options, mode: str) -> Row:
    """Round trips of small messages over one link."""
    row = scenarios.rtt(options, "anabranch", "", RTT_BYTES)
    return {**row, "operation": "rtt", "path": "direct", "mode": mode}


def join(options: Options, mode: str, times: int) -> Row:
    """Milliseconds from the start of a peer until it has its link and hears of a subscription behind it."""
    taken = run(_joins(options, times))
    return {
        "system": "anabranch",
        "operation": "join",
        "path": "direct",
        "size": 0,
        "mode": mode,
        "p50_ms": round(statistics.median(taken) * 1e3, 3),
        "joins": times,
    }


async def _joins(options: Options, times: int) -> list[float]:
    config = Config(neighbours_target=0)
    taken = []

    def peer(name: str, to: str) -> Peer:
        place = f"{options.identities}/{name}" if options.identities else None
        return Peer(
            name, listen="tcp://127.0.0.1:0", join=[to] if to else [], config=config, identity=place,
            open=place is None,
        )  # fmt: skip

    async with peer("old", "") as old, old.subscribe("bench/join"):
        for _ in range(times):
            newcomer = peer("new", old.addresses[0])
            begun = time.perf_counter()
            async with newcomer:
                await newcomer.wait_for_subscribers("bench/join", timeout=_JOIN_TIMEOUT_S)
                taken.append(time.perf_counter() - begun)
            await asyncio.sleep(0.05)
    return taken


def plan(options: Options, sizes: list[int], relayed: bool, joins: int, place: str) -> list[Step]:
    """Everything that is measured once, open and secured in turns: unit, function, arguments."""
    modes = {
        mode: msgspec.structs.replace(options, identities=place if mode == "secured" else "")
        for mode in MODES
    }
    steps: list[Step] = [
        ("messages/s", throughput, (chosen, mode, size, path))
        for path in (("direct", "relay") if relayed else ("direct",))
        for size in sizes
        for mode, chosen in modes.items()
    ]
    steps += [("us", rtt, (chosen, mode)) for mode, chosen in modes.items()]
    return [*steps, *(("ms", join, (chosen, mode, joins)) for mode, chosen in modes.items())]


def summary(measured: list[Row]) -> tuple[list[Row], list[Row]]:
    """Medians, and what secured is to open."""
    rows: list[Row] = []
    found: list[Row] = []
    for operation, value in VALUES.items():
        cell = ("system", "operation", "path", "size", "mode")
        of_it = median_rows([row for row in measured if row["operation"] == operation], cell, (value,))
        rows += of_it
        same = ("operation", "path", "size")
        for ratio in ratios(of_it, value, by="mode", of="secured", same=same):
            if operation == "join":
                times = {row["mode"]: row[value] for row in of_it}
                ratio["added_ms"] = round(times["secured"] - times["open"], 3)
            found.append(ratio)
    return rows, found
