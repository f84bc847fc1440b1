"""One message against many filters, and one expression against many sites: by the index, and asking each."""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

from anabranch.overlay.attributes import Row
from anabranch.overlay.config import Config
from anabranch.overlay.errors import UsageError
from anabranch.overlay.expressions import Expression, parse
from anabranch.overlay.filterindex import FilterIndex
from anabranch.overlay.siteindex import ABSORB_MAX, SiteIndex
from anabranch.tools.bench.measuring import percentile
from anabranch.tools.bench.scenarios import Row as ResultRow
from anabranch.transport.peer import Peer

ENTRIES_MAX = 1_000_000
MATCHES = 10
"""Filters that a message of all names matches, however many there are: they get narrower as they get more."""
ASKED = 3
"""Attributes that one filter asks for."""
CARRIED_MAX = 32
"""Attributes of one message: those of some filter, and others."""
NAMES_MAX = 10_000
CHANGES_MAX = 20_000
ROWS = 300
PLAIN_ROWS = 5
"""Of those, the ones for which each filter is asked."""
CHANGES = 2000
MARKS_PER_SECOND = 50
"""Changes of which it is measured when they are in effect elsewhere."""
CHAIN = Config.local(neighbours_target=0)
SELECTIONS = (
    "region = 'r3' and load > 0.8",
    "load between 0.2 and 0.4 and up",
    "not (load < 0.5) and region in ('r1', 'r2', 'r5')",
    "tags superset {'a'} or load > 0.95",
    "load > 0.5 or not up",
)


NOBODY = parse("nowhere")


def parse_entries(option: str, text: str) -> list[int]:
    """`1000,10000` to numbers of entries; each once, in the order given."""
    counts = []
    for part in text.split(","):
        try:
            count = int(part)
        except ValueError:
            count = 0
        if not 0 < count <= ENTRIES_MAX:
            raise UsageError(
                f"{option} {text!r}: {part.strip()!r} is not a number of entries; give whole numbers from 1 "
                f"to {ENTRIES_MAX}, separated by commas, such as 1000,10000"
            )
        counts.append(count)
    return list(dict.fromkeys(counts))


def filters(count: int, seed: int = 1, names: int = ASKED) -> ResultRow:
    """One message against so many filters of three closed ranges each; no equality makes it easy."""
    rng = random.Random(seed)  # noqa: S311 - must be repeatable
    known = [f"a{number}" for number in range(names)]
    width = min(1.0, MATCHES / count) ** (1 / ASKED)
    asked = [{name: rng.random() * (1 - width) for name in rng.sample(known, ASKED)} for _ in range(count)]
    expressions = [_filter(lows, width) for lows in asked]
    index: FilterIndex[int] = FilterIndex()
    begun = time.perf_counter()
    for owner, expression in enumerate(expressions):
        index.add(expression, owner)
    built_us = (time.perf_counter() - begun) / count * 1e6
    rows: list[Row] = []
    for _ in range(ROWS):
        others = rng.sample(known, min(names, CARRIED_MAX - ASKED))
        matched = rng.choice(asked).items()
        rows.append(
            {name: rng.random() for name in others}
            | {name: low + rng.random() * width for name, low in matched}
        )
    matches = 0
    taken = []
    for row in rows:
        begun_ns = time.perf_counter_ns()
        found = index.find(row)
        taken.append(time.perf_counter_ns() - begun_ns)
        matches += len(found)
    plain = [_timed(lambda row=row: [each.matches(row) for each in expressions]) for row in rows[:PLAIN_ROWS]]  # type: ignore[misc]
    p50_us = percentile(sorted(taken), 0.5) / 1e3
    each_us = percentile(sorted(plain), 0.5) / 1e3
    return {
        "filters": count,
        "names": names,
        "p50_us": round(p50_us, 1),
        "p99_us": round(percentile(sorted(taken), 0.99) / 1e3, 1),
        "each_us": round(each_us, 1),
        "speedup": round(each_us / p50_us, 1),
        "matches": round(matches / ROWS, 1),
        "add_us": round(built_us, 1),
    }


def sites(count: int, seed: int = 1) -> ResultRow:
    """One expression against so many sites, and what it costs that a site changes."""
    rng = random.Random(seed)  # noqa: S311 - must be repeatable
    index = SiteIndex()
    for number in range(count):
        index.set(f"s{number}", _site(rng))
    for _ in range(count // ABSORB_MAX + 1):
        index.find(NOBODY)
    selections = [parse(text) for text in SELECTIONS]
    taken = []
    matches = 0
    for _ in range(40):
        for expression in selections:
            begun_ns = time.perf_counter_ns()
            matches += len(index.find(expression))
            taken.append(time.perf_counter_ns() - begun_ns)
    plain = [
        _timed(lambda each=each: [each.matches(row) for row in index.rows.values()])  # type: ignore[misc]
        for each in selections
    ]
    changes = [(f"s{rng.randrange(count)}", _site(rng)) for _ in range(CHANGES)]
    begun = time.perf_counter()
    for number, (name, row) in enumerate(changes, 1):
        index.set(name, row)
        if number % ABSORB_MAX == 0 or number == CHANGES:
            index.find(NOBODY)  # searches take changes in
    change_us = (time.perf_counter() - begun) / CHANGES * 1e6
    return {
        "sites": count,
        "p50_us": round(percentile(sorted(taken), 0.5) / 1e3, 1),
        "p99_us": round(percentile(sorted(taken), 0.99) / 1e3, 1),
        "each_us": round(percentile(sorted(plain), 0.5) / 1e3, 1),
        "matches": round(matches / len(taken), 1),
        "change_us": round(change_us, 1),
        "changes_per_second": round(1e6 / change_us),
    }


async def changes(rate: int, seconds: float = 2.0) -> ResultRow:
    """A site that changes so often, and how long until a peer two links away selects by it: real sockets."""
    async with AsyncExitStack() as stack:
        peers: list[Peer] = []
        for name in ("site", "between", "selecting"):
            join = peers[-1].addresses if peers else []
            peer = Peer(name, listen="tcp://127.0.0.1:0", join=join, open=True, config=CHAIN)
            peers.append(await stack.enter_async_context(peer))
        site, _, selecting = peers
        site.subscribe("@site")
        await selecting.wait_for_subscribers("@site", timeout=10)
        sent, begun_s, cpu_s = _control_bytes(peers), time.monotonic(), time.process_time()
        waiting: dict[int, float] = {}
        taken_us: list[int] = []
        made = 0
        while (now := time.monotonic()) < begun_s + seconds:
            while made < (now - begun_s) * rate:
                made += 1
                site.set_attributes({"n": made, "load": made % 100 / 100, "region": "north"})
                if made % max(1, rate // MARKS_PER_SECOND) == 0:
                    waiting[made] = now
            for number, since in list(waiting.items()):
                if not selecting.subscribers("@site", to=f"n >= {number}"):
                    break
                taken_us.append(round((time.monotonic() - since) * 1e6))
                del waiting[number]
            await asyncio.sleep(0.001)
        elapsed_s = time.monotonic() - begun_s
        return {
            "changes": rate,
            "p50_us": percentile(sorted(taken_us), 0.5),
            "p99_us": percentile(sorted(taken_us), 0.99),
            "made_per_second": round(made / elapsed_s),
            "control_bytes_per_second": round((_control_bytes(peers) - sent) / elapsed_s),
            "cpu_share": round((time.process_time() - cpu_s) / elapsed_s, 2),
        }


def _control_bytes(peers: list[Peer]) -> int:
    return sum(peer.counters.get("sent.control_bytes", 0) for peer in peers)


def _filter(lows: dict[str, float], width: float) -> Expression:
    parts = [f"{name} between {low!r} and {low + width!r}" for name, low in lows.items()]
    return parse(" and ".join(parts))


def _site(rng: random.Random) -> Row:
    return {
        "load": rng.random(),
        "region": f"r{rng.randrange(20)}",
        "up": rng.random() < 0.9,
        "tags": frozenset(rng.sample("abcd", rng.randint(0, 3))),
    }


def _timed(work: Callable[[], object]) -> int:
    begun_ns = time.perf_counter_ns()
    work()
    return time.perf_counter_ns() - begun_ns
