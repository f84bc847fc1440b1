"""What the logs say about links, in the form that peers load: availabilities and shared fate."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users call it

from anabranch.tools.analytics.fate import groups_of, together_down

Row = dict[str, object]
UNSEEN_S = 1.0
"""A link that never failed while it was watched may have done so for this long just afterwards."""


def profile_of(links: DataFrame, outages: DataFrame, pairs: DataFrame) -> Row:
    """The profile, in the form of `overlay/profiles.py`."""
    rows = (
        links.groupBy("link")
        .agg(
            F.first("a").alias("a"),
            F.first("b").alias("b"),
            F.sum("observed_s").alias("observed_s"),
            F.sum("down_s").alias("down_s"),
        )
        .orderBy("link")
        .collect()
    )
    ends = {row["link"]: (row["a"], row["b"]) for row in rows}
    watched = {row["link"]: row["observed_s"] for row in rows}
    known = [
        {
            "between": list(ends[row["link"]]),
            "availability": _share_up(row["down_s"], row["observed_s"]),
            "observed_s": round(row["observed_s"], 3),
        }
        for row in rows
        if row["observed_s"] > 0
    ]
    found = pairs.where("shares_fate").select("a_link", "b_link").orderBy("a_link", "b_link").collect()
    groups = groups_of((row["a_link"], row["b_link"]) for row in found)
    return {"version": 1, "links": known, "groups": _groups(groups, outages, ends, watched)}


def _groups(
    groups: list[list[str]],
    outages: DataFrame,
    ends: dict[str, tuple[str, str]],
    watched: dict[str, float],
) -> list[Row]:
    if not groups:
        return []
    members = outages.sparkSession.createDataFrame(
        [(number, link) for number, group in enumerate(groups) for link in group],
        "`group` int, link string",
    )
    down = {row["group"]: row["together_s"] for row in together_down(outages, members).collect()}
    return [
        {
            "links": [list(ends[link]) for link in group],
            "availability": _share_up(down.get(number, 0.0), max(watched[link] for link in group)),
        }
        for number, group in enumerate(groups)
    ]


def _share_up(down_s: float, observed_s: float) -> float:
    return round(max(0.0, 1 - max(down_s, UNSEEN_S) / (observed_s + UNSEEN_S)), 9)
