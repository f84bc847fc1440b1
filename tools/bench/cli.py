"""`anabranch bench …`: measures the product next to others, all on this machine in one run."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from anabranch.tools.bench import scenarios, securing
from anabranch.tools.bench.analytics import analytics as measure_analytics
from anabranch.tools.bench.analytics import growth, parse_rows
from anabranch.tools.bench.matching import CHANGES_MAX, NAMES_MAX, parse_entries
from anabranch.tools.bench.matching import changes as measure_changes
from anabranch.tools.bench.matching import filters as measure_filters
from anabranch.tools.bench.matching import sites as measure_sites
from anabranch.tools.bench.printing import guarded, print_results, progress
from anabranch.tools.bench.replies.command import replies
from anabranch.tools.bench.routing import parse_links, parse_peers
from anabranch.tools.bench.routing import routing as measure_routing
from anabranch.tools.bench.scenarios import Options, Row
from anabranch.tools.bench.summary import (
    best_variant,
    median_rows,
    parse_against,
    parse_number,
    parse_sizes,
    ratios,
)
from anabranch.tools.bench.systems import PRODUCT, RIVALS, System
from anabranch.tools.bench.topics import topics as measure_topics
from anabranch.transport.loops import run as run_loop

bench_app = typer.Typer(
    help="Measure throughput, round trips, relaying, fan-out, memory, routing, analysis, next to others.",
    no_args_is_help=True,
)

Sizes = Annotated[str, typer.Option("--size", help="Payload sizes in bytes, separated by commas.")]
Against = Annotated[
    str,
    typer.Option(
        "--against",
        help="Systems to compare with: raw, raw_blocking, zenoh, nats, separated by commas, or none.",
    ),
]
Seconds = Annotated[
    float, typer.Option("--seconds", help="How long each measurement takes after its warm-up.")
]
Warmup = Annotated[float, typer.Option("--warmup", help="Seconds before each measurement that don't count.")]
Runs = Annotated[int, typer.Option("--runs", help="Repeat everything this often and give medians.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]


@bench_app.command()
def throughput(
    size: Sizes = "64,1024,10240",
    against: Against = "raw,zenoh,nats",
    seconds: Seconds = 3.0,
    warmup: Warmup = 0.5,
    runs: Runs = 1,
    as_json: AsJson = False,
) -> None:
    """Messages per second from one process to another, counted at the receiver."""
    options, sizes = _options(seconds, warmup, runs), parse_sizes(size)
    systems, skipped = _available(parse_against(against))

    def measure() -> list[Row]:
        return [
            _measured("messages/s", scenarios.throughput, options, system.name, variant, each)
            for each in sizes
            for system in systems
            for variant in (*system.throughput, *system.unranked)
        ]

    values = ("messages_per_second", "sender_cpu_us_per_message")
    rows = _best_variants(_repeat(runs, measure), values, highest=True)
    found = ratios(rows, "messages_per_second", by="system", of=PRODUCT.name, same=("size",))
    print_results("throughput", rows, found, skipped, as_json)


@bench_app.command()
def rtt(
    size: Sizes = "64",
    against: Against = "raw,zenoh,nats",
    seconds: Seconds = 3.0,
    warmup: Warmup = 0.5,
    runs: Runs = 1,
    as_json: AsJson = False,
) -> None:
    """Microseconds to an echoing process and back, one message at a time. A lower ratio is better."""
    options, sizes = _options(seconds, warmup, runs), parse_sizes(size)
    systems, skipped = _available(parse_against(against))

    def measure() -> list[Row]:
        return [
            _measured("us", scenarios.rtt, options, system.name, variant, each)
            for each in sizes
            for system in systems
            for variant in system.rtt
        ]

    rows = _best_variants(_repeat(runs, measure), ("p50_us", "p99_us"), highest=False)
    found = ratios(rows, "p50_us", by="system", of=PRODUCT.name, same=("size",), also=("p50_us", "p99_us"))
    print_results("rtt", rows, found, skipped, as_json)


@bench_app.command()
def relay(
    size: Sizes = "64,1024,10240",
    seconds: Seconds = 3.0,
    warmup: Warmup = 0.5,
    runs: Runs = 1,
    as_json: AsJson = False,
) -> None:
    """Throughput through a third process, compared with that of a direct link."""
    options, sizes = _options(seconds, warmup, runs), parse_sizes(size)

    def measure() -> list[Row]:
        return [
            _measured("messages/s", scenarios.relay, options, mode, each)
            for each in sizes
            for mode in ("direct", "relay")
        ]

    rows = median_rows(_repeat(runs, measure), ("system", "mode", "size"), ("messages_per_second",))
    found = ratios(rows, "messages_per_second", by="mode", of="relay", same=("size",))
    print_results("relay", rows, found, [], as_json)


@bench_app.command()
def security(
    size: Sizes = "64,1024,10240",
    relayed: Annotated[
        bool, typer.Option("--relayed", help="Measure throughput through a relay too.")
    ] = False,
    joins: Annotated[int, typer.Option("--joins", help="How often a peer joins.")] = 15,
    seconds: Seconds = 3.0,
    warmup: Warmup = 0.5,
    runs: Runs = 1,
    as_json: AsJson = False,
) -> None:
    """Throughput, round trips and joining in a secured mesh, compared with an open one."""
    parse_number("--joins", joins, 3, 1000)
    options, sizes = _options(seconds, warmup, runs), parse_sizes(size)
    with securing.identities() as place:

        def measure() -> list[Row]:
            planned = securing.plan(options, sizes, relayed, joins, place)
            return [_measured(unit, scenario, *arguments) for unit, scenario, arguments in planned]

        rows, found = securing.summary(_repeat(runs, measure))
    print_results("security", rows, found, [], as_json)


@bench_app.command()
def fanout(
    peers: Annotated[int, typer.Option("--peers", help="How many subscribing peers, compared with one.")] = 8,
    size: Sizes = "64",
    rate: Annotated[
        float, typer.Option("--rate", help="Messages per second to publish; 0 for as fast as they are taken.")
    ] = 0.0,
    seconds: Seconds = 3.0,
    warmup: Warmup = 0.5,
    runs: Runs = 1,
    as_json: AsJson = False,
) -> None:
    """CPU time that a publisher spends per message and link, with many subscribing peers and with one."""
    parse_number("--peers", peers, 2, 64)
    options, sizes = (
        _options(seconds, warmup, runs, rate=parse_number("--rate", rate, 0, 1e9)),
        parse_sizes(size),
    )

    def measure() -> list[Row]:
        return [
            _measured("us per link", scenarios.fanout, options, count, each)
            for each in sizes
            for count in (1, peers)
        ]

    values = ("cpu_us_per_message_per_link", "messages_per_second")
    rows = median_rows(_repeat(runs, measure), ("system", "peers", "size"), values)
    found = ratios(rows, "cpu_us_per_message_per_link", by="peers", of=peers, same=("size",))
    for ratio in found:
        ratio.update(to="one", peers=peers, per_link_cost=ratio["ratio"])
    print_results("fanout", rows, found, [], as_json)


@bench_app.command()
def memory(
    messages: Annotated[int, typer.Option("--messages", help="How many to send.")] = 10_000_000,
    size: Sizes = "64",
    as_json: AsJson = False,
) -> None:
    """Resident memory of an idle peer, and of two peers early and late in a long run."""
    parse_number("--messages", messages, 10_000, 10_000_000_000)
    rows, found = [], []
    for each in parse_sizes(size):
        for row in guarded(scenarios.memory, Options(), messages, each):
            rows.append(row)
            if "samples" in row:
                early = row["samples"][1]
                found.append(
                    {
                        "to": f"after {early['messages']} messages",
                        "size": each,
                        "role": row["role"],
                        "ratio": round(row["rss_mb"] / early["rss_mb"], 4),
                    }
                )
    print_results("memory", rows, found, [], as_json)


@bench_app.command()
def routing(
    peers: Annotated[
        str, typer.Option("--peers", help="Peers in the mesh, separated by commas for several meshes.")
    ] = "200,1000",
    links: Annotated[int, typer.Option("--links", help="Links of each peer, an even number.")] = 8,
    seconds: Annotated[float, typer.Option("--seconds", help="How long each mesh is measured.")] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Milliseconds from a changed link to a publisher's new route, in one process and without a network."""
    meshes = parse_peers(peers, parse_links(links))
    parse_number("--seconds", seconds, 0.05, 3600)
    rows = []
    for count in meshes:
        progress.print(f"  {count:,} peers, {links} links each", markup=False)
        for row in guarded(measure_routing, count, links, seconds):
            progress.print(f"    {row['change']}: {row['p50_ms']:,.3f} ms", markup=False)
            rows.append(row)
    print_results("routing", rows, [], [], as_json)


@bench_app.command()
def matching(
    filters: Annotated[
        str, typer.Option("--filters", help="Filters against one message, separated by commas.")
    ] = "1000,10000,100000",
    sites: Annotated[
        str, typer.Option("--sites", help="Sites against one expression, separated by commas; 0 for none.")
    ] = "1000,10000",
    changes: Annotated[
        int,
        typer.Option("--changes", help="Changes per second of one site, seen from afar; 0 for none."),
    ] = 1000,
    names: Annotated[
        int, typer.Option("--names", help="Attributes there are; filters ask for 3, messages have up to 32.")
    ] = 3,
    as_json: AsJson = False,
) -> None:
    """Microseconds from a message to the filters that let it pass, and from an expression to its sites."""
    filter_counts = parse_entries("--filters", filters)
    site_counts = parse_entries("--sites", sites) if sites != "0" else []
    rows = []
    parse_number("--names", names, 3, NAMES_MAX)
    for counts, measure, what in (
        (filter_counts, partial(measure_filters, names=names), "filters"),
        (site_counts, measure_sites, "sites"),
    ):
        for count in counts:
            progress.print(f"  {count:,} {what}", markup=False)
            rows.append(guarded(measure, count))
            progress.print(f"    {rows[-1]['p50_us']:,} us", markup=False)
    if changes:
        rate = int(parse_number("--changes", changes, 1, CHANGES_MAX))
        progress.print(f"  {rate:,} changes/s", markup=False)
        rows.append(guarded(lambda: run_loop(measure_changes(rate))))
        progress.print(f"    {rows[-1]['p50_us']:,} us", markup=False)
    print_results("matching", rows, [], [], as_json)


@bench_app.command()
def topics(
    repetitions: Annotated[int, typer.Option("--repetitions", help="Of each operation.")] = 100,
    stored: Annotated[
        int, typer.Option("--stored", help="Advertisements at a discovery node of its own; 0 for none.")
    ] = 100_000,
    as_json: AsJson = False,
) -> None:
    """Milliseconds to create a topic and to discover some, everything signed and sealed."""
    parse_number("--repetitions", repetitions, 3, 10_000)
    parse_number("--stored", stored, 0, 1_000_000)
    rows = guarded(measure_topics, repetitions, stored)
    print_results("topics", rows, [], [], as_json)


@bench_app.command()
def analytics(
    rows: Annotated[
        str, typer.Option("--rows", help="Rows of made-up logs, separated by commas for several runs.")
    ] = "1000000",
    memory: Annotated[
        str, typer.Option("--memory", help="Heap of the driver, as spark.driver.memory takes it.")
    ] = "2g",
    as_json: AsJson = False,
) -> None:
    """Seconds and rows/s of all jobs of `anabranch analyze`; three of them next to DuckDB."""
    sizes = parse_rows(rows)
    results = guarded(
        measure_analytics, sizes, memory, lambda line: progress.print(f"  {line}", markup=False)
    )
    print_results("analytics", results, growth(results), [], as_json)


def _options(seconds: float, warmup: float, runs: int, rate: float = 0.0) -> Options:
    parse_number("--runs", runs, 1, 1000)
    return Options(
        seconds=parse_number("--seconds", seconds, 0.05, 3600),
        warmup_s=parse_number("--warmup", warmup, 0, 600),
        rate=rate,
    )


def _available(names: list[str]) -> tuple[list[System], list[Row]]:
    systems, skipped = [PRODUCT], []
    for name in names:
        reason = RIVALS[name].missing()
        if reason:
            skipped.append({"system": name, "reason": reason})
            progress.print(f"skipped {name}: {reason}", markup=False)
        else:
            systems.append(RIVALS[name])
    return systems, skipped


def _repeat(runs: int, measure: Callable[[], list[Row]]) -> list[Row]:
    """All systems take turns within each run, so that a busy moment of the machine hits none alone."""
    rows = []
    for run in range(1, runs + 1):
        if runs > 1:
            progress.print(f"run {run} of {runs}")
        rows += measure()
    return rows


def _best_variants(measured: list[Row], values: tuple[str, ...], *, highest: bool) -> list[Row]:
    """Of each system and size the variant with the best median: the best of each single run would be luck."""
    cells: dict[tuple[Any, ...], list[Row]] = {}
    for row in median_rows(measured, ("system", "size", "variant"), values):
        cells.setdefault((row["system"], row["size"]), []).append(row)
    unranked = {name: system.unranked for name, system in RIVALS.items()}
    return [
        best_variant(rows, values[0], highest=highest, unranked=unranked.get(system, ()))
        for (system, _), rows in cells.items()
    ]


def _measured(unit: str, scenario: Callable[..., Row], *arguments: Any) -> Row:
    row = guarded(scenario, *arguments)
    keys = ("p50_us", "p50_ms", "cpu_us_per_message_per_link", "messages_per_second")
    value = next(row[key] for key in keys if key in row)
    what = " ".join(str(row[key]) for key in ("system", "variant", "mode") if row.get(key))
    peers = f" to {row['peers']}" if "peers" in row else ""
    lost = f", {row['lost']:,} lost" if row.get("lost") else ""
    progress.print(f"  {what}{peers}, {row['size']} B: {value:,.2f} {unit}{lost}", markup=False)
    return row


bench_app.command()(replies)
