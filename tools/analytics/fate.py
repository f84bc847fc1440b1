"""Links that fail together: which outages coincide more than chance allows, and the groups that follow.

Feeds the profile. Looks only at outages that were the link's own, not its peer's.
"""

from collections.abc import Iterable

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users call it

from anabranch.tools.analytics.links import merged

TOGETHER_LEAST = 2
"""Coincidences that make two links suspicious …"""
OVERLAP_LEAST = 0.5
"""… if so many of the outages of the one that failed less were among them …"""
LIFT_LEAST = 3.0
"""… and that is so many times what chance gives."""
NEAR_US = 1_000_000
"""Outages are noticed within about a second: so far apart they still count as one event."""
BUCKET_US = 600_000_000


def coincidences(outages: DataFrame, links: DataFrame) -> DataFrame:
    """Pairs of links: how often they failed together, how often chance would have it, and for how long."""
    own = whole_outages(outages)
    spread = own.withColumn(
        "bucket",
        F.explode(
            F.sequence(
                F.floor((F.col("start") - NEAR_US) / BUCKET_US), F.floor((F.col("end") + NEAR_US) / BUCKET_US)
            )
        ),
    )
    a = spread.select("run", "bucket", *(F.col(name).alias(f"a_{name}") for name in ("link", "start", "end")))
    b = spread.select("run", "bucket", *(F.col(name).alias(f"b_{name}") for name in ("link", "start", "end")))
    is_near = (F.col("a_start") <= F.col("b_end") + NEAR_US) & (F.col("b_start") <= F.col("a_end") + NEAR_US)
    met = (
        a.join(b, ["run", "bucket"])
        .where((F.col("a_link") < F.col("b_link")) & is_near)
        .drop("bucket")
        .distinct()
    )
    pairs = met.groupBy("a_link", "b_link").agg(F.count_distinct("run", "a_start").alias("together"))
    totals = links.groupBy("link").agg(
        F.sum("outages").alias("outages"),
        F.sum("down_s").alias("down_s"),
        F.sum("observed_s").alias("observed_s"),
    )
    for side in ("a", "b"):
        named = totals.select(
            F.col("link").alias(f"{side}_link"),
            *(F.col(name).alias(f"{side}_{name}") for name in ("outages", "down_s", "observed_s")),
        )
        pairs = pairs.join(named, f"{side}_link")
    lasting = (
        F.col("a_down_s") / F.col("a_outages") + F.col("b_down_s") / F.col("b_outages") + 2 * NEAR_US / 1e6
    )
    watched = F.greatest("a_observed_s", "b_observed_s")
    chance = F.col("a_outages") * F.least(F.lit(1.0), F.col("b_outages") * lasting / watched)
    overlap = F.least(F.lit(1.0), F.col("together") / F.least("a_outages", "b_outages"))
    return pairs.select(
        "a_link",
        "b_link",
        "together",
        "a_outages",
        "b_outages",
        chance.alias("by_chance"),
        (F.col("together") / chance).alias("lift"),
        overlap.alias("overlap"),
    ).withColumn(
        "shares_fate",
        (F.col("together") >= TOGETHER_LEAST)
        & (F.col("overlap") >= OVERLAP_LEAST)
        & (F.col("lift") >= LIFT_LEAST),
    )


def whole_outages(outages: DataFrame) -> DataFrame:
    """run, link, start, end: what both ends tell of the same outage, once."""
    own = outages.where("fault = 'link'").select("run", "link", "start", "end")
    return merged(own.withColumn("cause", F.lit("")).withColumn("rank", F.lit(1)), ["run", "link"])


def groups_of(pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Links that share their fate, directly or by others in between; sorted."""
    home: dict[str, set[str]] = {}
    for a, b in pairs:
        joined = home.get(a, {a}) | home.get(b, {b})
        for link in joined:
            home[link] = joined
    return sorted(sorted(group) for group in {id(group): group for group in home.values()}.values())


def together_down(outages: DataFrame, members: DataFrame) -> DataFrame:
    """Per group: for how long, and how often, at least two of its links were down at a time.

    `members` is (group, link).
    """
    single = whole_outages(outages).join(members, "link")
    steps = single.select("run", "group", F.col("start").alias("at"), F.lit(1).alias("step")).unionByName(
        single.select("run", "group", F.col("end").alias("at"), F.lit(-1).alias("step"))
    )
    timeline = Window.partitionBy("run", "group").orderBy("at", "step")
    levels = steps.withColumn(
        "level", F.sum("step").over(timeline.rowsBetween(Window.unboundedPreceding, 0))
    ).withColumn("next_at", F.lead("at").over(timeline))
    return (
        levels.where((F.col("level") >= 2) & F.col("next_at").isNotNull())
        .groupBy("group")
        .agg((F.sum(F.col("next_at") - F.col("at")) / 1e6).alias("together_s"))
    )
