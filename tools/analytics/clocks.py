"""How far the clocks of hosts are apart, from the logs alone, so that outages of different peers line up.

Two kinds of events are seen by two peers at nearly the same time: a link that comes up, and the same message
at two receivers, each of which knows how old it was.
"""

import statistics
from collections import defaultdict

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users call it

UPS_MAX = 50
"""Of each end of a link; more say nothing new."""
LEAST_ERROR_US = 250_000
"""Smaller offsets are not told from the delays of links, and do no harm to what is made of the times."""
BELIEVED_SHARE = 1 / 3
"""Of what two peers should have seen together, so much must agree on an offset. Matches by chance don't."""
_GRAIN_US = 250_000
SCHEMA = "run string, peer string, offset_us long, error_us long, is_used boolean"

Pair = tuple[str, str]
Seen = tuple[int, float, float]
"""How often, which difference, how many were due."""


def pair_differences(links: DataFrame, deliveries: DataFrame) -> DataFrame:
    """run, a, b, difference_us (clock of a less clock of b), n: how many observations say so; some are wrong.

    The `due` of a pair of peers, added up, would say the same if both saw whatever one of them saw.
    """
    ups = links.where("state = 'up' and cause = 'hello'").select("run", "peer", "neighbour", "ts")
    first = ups.groupBy("run", "peer", "neighbour").agg(
        F.slice(F.sort_array(F.collect_list("ts")), 1, UPS_MAX).alias("times")
    )
    size = F.size("times")
    here = first.select(
        "run",
        F.col("peer").alias("a"),
        F.col("neighbour").alias("b"),
        size.alias("ups"),
        F.explode("times").alias("at"),
    )
    there = first.select(
        "run",
        F.col("peer").alias("b"),
        F.col("neighbour").alias("a"),
        size.alias("ups_there"),
        F.explode("times").alias("on"),
    )
    by_links = (
        here.join(there, ["run", "a", "b"])
        .where("a < b")
        .select(
            "run",
            "a",
            "b",
            (F.col("at") - F.col("on")).alias("difference_us"),
            (1 / F.greatest("ups", "ups_there")).alias("due"),  # of all pairs, as many as ups
        )
    )
    stream = ["run", "origin", "origin_epoch", "publisher", "topic"]
    # A few messages per second and stream are plenty, and both receivers pick the same ones by their number.
    sampled = deliveries.where(F.col("seq") % 64 == 0).select(
        *stream, "seq", "peer", (F.col("ts") - F.col("age_us")).alias("put_at")
    )
    per_peer = sampled.groupBy(*stream, "seq", "peer").agg(F.min("put_at").alias("put_at"))
    a = per_peer.withColumnsRenamed({"peer": "a", "put_at": "a_at"})
    b = per_peer.withColumnsRenamed({"peer": "b", "put_at": "b_at"})
    by_messages = (
        a.join(b, [*stream, "seq"])
        .where("a < b")
        .select(
            "run", "a", "b", (F.col("a_at") - F.col("b_at")).alias("difference_us"), F.lit(1.0).alias("due")
        )
    )
    grain = F.round(F.col("difference_us") / _GRAIN_US).cast("long").alias("grain")
    return (
        by_links.unionByName(by_messages)
        .groupBy("run", "a", "b", grain)
        .agg(
            F.count("*").alias("n"), F.avg("difference_us").alias("difference_us"), F.sum("due").alias("due")
        )
    )


def offsets(spark: SparkSession, differences: DataFrame) -> DataFrame:
    """Each peer's offset against most others of its run; `is_used` where it is larger than its error."""
    found: dict[str, dict[Pair, list[Seen]]] = defaultdict(lambda: defaultdict(list))
    for row in differences.collect():
        found[row["run"]][row["a"], row["b"]].append((row["n"], row["difference_us"], row["due"]))
    rows = []
    for run in sorted(found):
        likeliest = {pair: likeliest_of(seen) for pair, seen in found[run].items()}
        clocks = solved({pair: each for pair, each in likeliest.items() if each is not None})
        for peer in sorted(clocks):
            offset = round(clocks[peer])
            rows.append((run, peer, offset, LEAST_ERROR_US, abs(offset) > LEAST_ERROR_US))
    return spark.createDataFrame(rows, SCHEMA)


def likeliest_of(seen: list[Seen]) -> tuple[int, float] | None:
    """What was seen most often, the smallest among equals; None if too few agree. Wrong matches differ."""
    n, difference, _ = max(seen, key=lambda each: (each[0], -abs(each[1])))
    due = sum(each[2] for each in seen)
    return (n, difference) if n >= BELIEVED_SHARE * due else None


def solved(pairs: dict[Pair, tuple[int, float]]) -> dict[str, float]:
    """Offsets that agree with the pairs seen most often; the median peer of each connected part has 0."""
    neighbours: dict[str, dict[str, tuple[int, float]]] = defaultdict(dict)
    for (a, b), (n, difference) in pairs.items():
        neighbours[a][b] = (n, -difference)
        neighbours[b][a] = (n, difference)
    clocks: dict[str, float] = {}
    for start in sorted(neighbours):
        if start in clocks:
            continue
        part = {start: 0.0}
        edge = {peer: (n, step, start) for peer, (n, step) in neighbours[start].items()}
        while edge:
            nearest = max(edge, key=lambda peer: (edge[peer][0], peer))
            _, step, origin = edge.pop(nearest)
            part[nearest] = part[origin] + step
            for peer, (n, further) in neighbours[nearest].items():
                if peer not in part and (peer not in edge or edge[peer][0] < n):
                    edge[peer] = (n, further, nearest)
        middle = statistics.median_low(part.values())
        clocks |= {peer: offset - middle for peer, offset in part.items()}
    return clocks
