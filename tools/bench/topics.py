"""How long it takes to create and to discover topics: a discovery node in a process of its own, a peer that
asks it over TCP, everything signed and sealed. The operations are those of the paper's tables 2 and 3.
"""

import asyncio
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding

from anabranch.security import advertisements
from anabranch.security.authority import Authority, key_pem
from anabranch.security.files import load_identity, write_private, write_public
from anabranch.security.statements import make_signature
from anabranch.security.synopses import Descriptors
from anabranch.security.trust import Trust
from anabranch.security.witnesses import Witnesses
from anabranch.tools.bench.jobs import BenchError
from anabranch.tools.bench.scenarios import Row
from anabranch.transport.loops import run
from anabranch.transport.peer import Peer
from anabranch.transport.topics.store import FILE_NAME, TopicStore

START_S = 30.0
COUNTS = (1, 10, 100)
UNSEEN_MIN = 20
"""Discoveries of topics that were never seen before, at least."""
GROUPS = 1000
"""Of stored topics: a query finds those of one group."""
KEPT_PART = 2000


def topics(repetitions: int, stored: int) -> list[Row]:
    """A row per operation; the last two with `stored` advertisements at the discovery node."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        identities = _Identities(directory)
        rows = run(_with_node(identities, "tdn-1", lambda peer: _small(peer, repetitions)))
        if stored:
            _fill(identities, "tdn-2", stored)
            rows += run(_with_node(identities, "tdn-2", lambda peer: _large(peer, repetitions, stored)))
    return rows


class _Identities:
    """An authority and what it issued."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority.create(directory / "authority", "bench.example", 2, time.time())

    def issue(self, name: str, *, is_tdn: bool = False) -> Path:
        place = self.directory / name
        if place.exists():
            return place
        holder, key = Authority(self.authority.directory, time.time()).issue(name, 24, is_tdn=is_tdn)
        assert key is not None
        place.mkdir()
        write_private(place / "key.pem", key_pem(key))
        write_public(place / "authority.pem", (self.authority.directory / "authority.pem").read_bytes())
        write_public(place / "certificate.pem", holder.certificate.public_bytes(Encoding.PEM))
        return place


async def _with_node(
    identities: _Identities, name: str, measure: Callable[[Peer], Awaitable[list[Row]]]
) -> list[Row]:
    """Measure with a discovery node in a process of its own."""
    program = "from anabranch.tools.cli import main; main()"
    command = [sys.executable, "-c", program, "peer", "--json", "--log-level", "error"]
    command += ["--identity", str(identities.issue(name, is_tdn=True)), "--listen", "tcp://127.0.0.1:0"]
    command += ["--tdn", str(identities.directory / f"{name}-store")]
    command += ["--set", "questions_rate_max=1000000"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, env={**os.environ, "ANABRANCH_OPEN": ""}
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), START_S)
        address = json.loads(line)["addresses"][0]
        seeker = identities.issue("seeker")
        async with Peer("seeker", join=address, identity=seeker) as peer:
            await peer.wait_for_peers(name, timeout=START_S)
            return await measure(peer)
    except (TimeoutError, ValueError) as error:
        raise BenchError(f"the discovery node did not start ({error})") from None
    finally:
        process.terminate()
        await process.wait()


async def _small(peer: Peer, repetitions: int) -> list[Row]:
    """Create, and discover 1, 10 and 100 topics: those that the peer never saw, then the same again."""

    async def create() -> None:
        await peer.create_topic(f"bench/{secrets.token_hex(4)}", text="created")

    rows = [await _timed("create", create, repetitions, {})]
    for count in COUNTS:
        words = [secrets.token_hex(8) for _ in range(max(UNSEEN_MIN, repetitions // count))]
        for word in words:
            for number in range(count):
                await peer.create_topic(f"found/{number}", text=word)
        turns = iter(words * 2)

        async def discover(count: int = count, turns: Iterator[str] = turns) -> None:
            found = await peer.discover(next(turns))
            if len(found.topics) != count or found.from_creators:
                raise BenchError(f"{len(found.topics)} topics found, {count} expected")

        row = await _timed(f"discover_{count}", discover, len(words), {"topics": count})
        again = await _timed(f"discover_{count}", discover, len(words), {})
        rows.append({**row, "p50_known_ms": again["p50_ms"]})
    return rows


async def _large(peer: Peer, repetitions: int, stored: int) -> list[Row]:
    """A text and a property among many topics; each finds those of one group."""
    rows = []
    for operation, query, by in (
        ("stored_string", "group-%d-end", "string"),
        ("stored_property", "grouping = %d AND height > 0", "sql"),
    ):
        turns = iter(range(GROUPS))

        async def discover(query: str = query, by: str = by, turns: Iterator[int] = turns) -> None:
            found = await peer.discover(query % next(turns), by=by, within=20)
            if not found.topics or found.from_creators:
                raise BenchError(f"{len(found.topics)} topics found")

        await discover()
        count = min(repetitions, GROUPS - 1)
        rows.append(await _timed(operation, discover, count, {"stored": stored, "topics": stored // GROUPS}))
    return rows


async def _timed(
    operation: str, work: Callable[[], Awaitable[None]], repetitions: int, more: dict[str, Any]
) -> Row:
    times = []
    for _ in range(repetitions):
        began = time.perf_counter()
        await work()
        times.append((time.perf_counter() - began) * 1e3)
    return {
        "operation": operation,
        **more,
        "p50_ms": round(median(times), 3),
        "p99_ms": round(sorted(times)[int(len(times) * 0.99)], 3),
        "repetitions": repetitions,
    }


def _fill(identities: _Identities, tdn: str, stored: int) -> None:
    """A store as a discovery node leaves it, with real signatures."""
    now = time.time()
    node = load_identity(identities.issue(tdn, is_tdn=True))
    creator = load_identity(identities.issue("creator"))
    ders = [each.holder.certificate.public_bytes(Encoding.DER) for each in (node, creator)]
    trust = Trust(node.authorities)
    witnesses = Witnesses(lambda: trust, identities.authority.domain)
    for der in ders:
        witnesses.meet(der)
    store = TopicStore(identities.directory / f"{tdn}-store" / FILE_NAME)

    def signed_by(index: int) -> Callable[[bytes, bytes], bytes]:
        key, der = (node, creator)[index].key, ders[index]
        return lambda purpose, payload: make_signature(key, der, purpose, payload, now)

    by_node, by_creator = signed_by(0), signed_by(1)

    def made(number: int) -> advertisements.Advertisement:
        group = number % GROUPS
        described = Descriptors(
            (f"plant/{group}",),
            f"meter group-{group}-end of plant {number}",
            {"grouping": group, "height": number % 97 + 1, "region": f"r{number % 7}"},
        )
        terms, encoded = advertisements.make_terms(
            creator.holder,
            f"plant/{group}/meter/{number}",
            described,
            synopsis_type="string",
            institution="Bench",
            restricted=False,
            sealed=False,
            discoverers=(),
            lifetime_s=86_400.0,
        )
        minted = advertisements.mint(terms, encoded, tdn, by_node, now)
        return advertisements.accept(minted, terms, tdn, witnesses, by_creator, now)

    for begin in range(0, stored, KEPT_PART):
        store.keep((made(number), ders) for number in range(begin, min(begin + KEPT_PART, stored)))
    store.close()
