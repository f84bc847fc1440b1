"""Jobs on a few rows made by hand, where the answer is plain."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users call it

from anabranch.tools.analytics import fate, links, mesh, requests
from anabranch.tools.analytics.clocks import likeliest_of, solved
from anabranch.tools.analytics.slots import in_slots, slot_widths

ENDS = "run string, peer string, neighbour string, "


def test_requests_and_who_is_missing(spark: SparkSession) -> None:
    schema = (
        "run string, peer string, epoch long, number long, topic string, protocol string, merge string, "
        "ts long, asked long, answered long, declined long, complete boolean, "
        "missing array<string>, duration_us long"
    )
    rows = [
        (".", "a", 1, 1, "t", "ker", "", 1, 3, 3, 0, True, [], 10_000),
        (".", "a", 1, 2, "t", "ker", "", 2, 3, 2, 0, False, ["x"], 90_000),
        (".", "a", 1, 3, "t", "ker", "", 3, 3, 1, 1, False, ["x", "y"], 20_000),
    ]
    replies = spark.createDataFrame(rows, schema)
    (found,) = requests.request_topics(replies).collect()
    assert (found["requests"], found["complete"], found["asked"], found["answered"]) == (3, 1, 9, 6)
    assert (found["missing"], found["missing_most"], found["duration_max_us"]) == (3, "x", 90_000)
    assert abs(found["p50_duration_us"] / 20_000 - 1) < 0.0101
    assert requests.requests(replies).count() == 3


def test_outages_that_begin_or_end_a_log(spark: SparkSession) -> None:
    changes = spark.createDataFrame(
        [
            (".", "a", "b", 0, "up", "hello"),
            (".", "a", "b", 100, "down", "silent"),  # and never up again
            (".", "a", "c", 50, "down", "silent"),  # was never up: no outage of a link that was none
            (".", "a", "d", 0, "up", "hello"),
            (".", "a", "d", 70, "down", "replaced"),
            (".", "a", "d", 70, "up", "hello"),  # another connection took over at once
        ],
        ENDS + "ts long, state string, cause string",
    )
    spans = spark.createDataFrame([(".", "a", 0, 500)], "run string, peer string, epoch long, last_ts long")
    found = {
        row["neighbour"]: (row["start"], row["end"]) for row in links.states_down(changes, spans).collect()
    }
    assert found["b"] == (100, 500)
    assert set(found) == {"b", "d"}
    assert found["d"] == (70, 70)


def test_an_outage_that_starts_with_the_first_probe_is_seen(spark: SparkSession) -> None:
    rows = [(".", "a", "b", 1, 1, seq, seq * 100, None if seq <= 3 else 5, 40) for seq in range(1, 7)]
    probes = spark.createDataFrame(
        rows, ENDS + "epoch long, connection long, seq long, ts long, rtt_us long, waited_us long"
    )
    (found,) = links.lost_runs(probes).collect()
    assert (found["start"], found["end"]) == (60, 300)


def test_intervals_that_touch_become_one_whatever_lies_inside(spark: SparkSession) -> None:
    rows = [
        (".", 0, 100, "long", 2),
        (".", 10, 20, "inside", 1),
        (".", 90, 150, "end", 1),
        (".", 160, 170, "x", 1),
    ]
    intervals = spark.createDataFrame(rows, "run string, start long, end long, cause string, rank int")
    found = links.merged(intervals, ["run"], slack_us=5).orderBy("start").collect()
    assert [(row["start"], row["end"], row["cause"]) for row in found] == [(0, 150, "long"), (160, 170, "x")]


def test_chance_meetings_are_no_shared_fate(spark: SparkSession) -> None:
    second = 1_000_000
    # x and y always together; z often down by itself
    rows = [
        (".", *link.split(" - "), link, n * 100 * second, (n * 100 + 3) * second, 3.0, "link")
        for n in range(5)
        for link in ("x - X", "y - Y")
    ]
    # The other end of x tells of the same outages, a little later.
    rows += [
        (".", "X", "x", "x - X", n * 100 * second + 9, (n * 100 + 3) * second, 3.0, "link") for n in range(5)
    ]
    rows += [
        (".", "z", "Z", "z - Z", (n * 37 + 50) * second, (n * 37 + 51) * second, 1.0, "link")
        for n in range(14)
    ]
    outages = spark.createDataFrame(
        rows, ENDS + "link string, start long, end long, seconds double, fault string"
    )
    whole = spark.createDataFrame(
        [(".", "x - X", 5, 15.0, 600.0), (".", "y - Y", 5, 15.0, 600.0), (".", "z - Z", 14, 14.0, 600.0)],
        "run string, link string, outages long, down_s double, observed_s double",
    )
    pairs = {(row["a_link"], row["b_link"]): row for row in fate.coincidences(outages, whole).collect()}
    assert pairs["x - X", "y - Y"]["shares_fate"]
    assert pairs["x - X", "y - Y"]["together"] == 5
    assert not any(row["shares_fate"] for names, row in pairs.items() if "z - Z" in names)
    members = spark.createDataFrame([(0, "x - X"), (0, "y - Y")], "`group` int, link string")
    (down,) = fate.together_down(outages, members).collect()
    assert down["together_s"] == 15


def test_groups_join_what_hangs_together() -> None:
    assert fate.groups_of([("a", "b"), ("c", "d"), ("b", "e")]) == [["a", "b", "e"], ["c", "d"]]
    assert fate.groups_of([]) == []


def test_flapping_counts_the_worst_ten_minutes(spark: SparkSession) -> None:
    minute = 60_000_000
    starts = (0, 1, 2, 30, 50, 51, 52, 53)
    rows = [(".", "a", "b", "a - b", n * minute, n * minute + 1, "link") for n in starts]
    outages = spark.createDataFrame(rows, ENDS + "link string, start long, end long, fault string")
    (found,) = links.flapping(outages).collect()
    assert found["flaps"] == 4


def test_what_is_unlike_the_first_quarter_is_told(spark: SparkSession) -> None:
    rows = [(".", "a", "b", n, 90_000.0 if n == 30 else 10_000.0 + n) for n in range(40)]
    slots = spark.createDataFrame(rows, ENDS + "slot long, delay_us double")
    (found,) = mesh.anomalies(slots, links.END, "delay_us").collect()
    assert (found["what"], found["slot"], found["value"]) == ("a b", 30, 90_000.0)


def test_counters_of_several_starts_add_up(spark: SparkSession) -> None:
    rows = [
        (".", "a", 1, 10, {"x": 5}, "bp"),
        (".", "a", 1, 20, {"x": 7}, "bp"),
        (".", "a", 2, 30, {"x": 1}, "bp"),
    ]
    controls = spark.createDataFrame(
        rows, "run string, peer string, epoch long, ts long, counters map<string,long>, variant string"
    )
    found = mesh.last_counters(controls).where(F.col("counter") == "x").collect()
    assert [row["value"] for row in found] == [8]


def test_each_run_has_slots_that_suit_its_length(spark: SparkSession) -> None:
    hour = 3_600_000_000
    rows = [("short", "a", 0, 30_000_000), ("long", "a", 0, hour), ("long", "b", hour, 3 * hour)]
    spans = spark.createDataFrame(rows, "run string, peer string, first_ts long, last_ts long")
    widths = slot_widths(spans)
    assert {row["run"]: row["slot_us"] for row in widths.collect()} == {
        "short": 1_000_000,
        "long": 15_000_000,
    }
    records = spark.createDataFrame([("short", 2_700_000), ("long", 31_000_000)], "run string, ts long")
    found = {row["run"]: row["slot"] for row in in_slots(records, widths).collect()}
    assert found == {"short": 2_000_000, "long": 30_000_000}


def test_clocks_that_agree_by_chance_alone_are_left_as_they_are() -> None:
    assert likeliest_of([(3, 7e6, 0.1), (2, 0.0, 0.1), *[(1, 1e6 * n, 0.3) for n in range(30)]]) is None
    assert likeliest_of([(3, 7e6, 0.1), *[(1, 1e6 * n, 0.3) for n in range(30)]][:26]) == (3, 7e6)


def test_clocks_agree_with_what_was_seen_most_often() -> None:
    pairs = {("a", "b"): (5, 0.0), ("b", "c"): (4, -9e6), ("a", "c"): (1, 123e6), ("x", "y"): (1, 1e6)}
    assert solved(pairs) == {"a": 0.0, "b": 0.0, "c": 9e6, "x": 1e6, "y": 0.0}
