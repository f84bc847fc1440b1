"""One analysis over several runs: by hand, by chance, dirty, with wrong clocks; checked table by table.

ANALYTICS_ROWS sets the number of random rows (200,000 for the full check), PROFILE_SEEDS
that of simulations (20).
"""

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
import support_fate as fate
import support_logs as logs
from pyspark.sql import SparkSession

from anabranch.overlay.errors import UsageError
from anabranch.tools.analytics.command import run
from anabranch.tools.analytics.jobs import analyze
from anabranch.transport.profiles import load_profile

pytestmark = pytest.mark.timeout(600)
"""The one analysis takes half a minute of a core's time, and a busy machine has less to give."""
ROWS = int(os.environ.get("ANALYTICS_ROWS", "12000"))
SEEDS = int(os.environ.get("PROFILE_SEEDS", "2"))
"""Simulations with and without the profile (20 for the full check)."""
DEMO_S = 8
BOUND = 0.0101
"""Percentiles come from bins 2 % wide: 1 % off at most, and the rounding of half microseconds."""

Row = dict[str, Any]


class Outcome:
    """What an analysis wrote, read without Spark."""

    def __init__(self, source: Path, out: Path, summary: Row) -> None:
        self.source, self.out, self.summary = source, out, summary
        self.db = duckdb.connect()

    def rows(self, table: str, run: str, order: str = "1") -> list[Row]:
        files = f"{self.out}/tables/{table}/**/*.parquet"
        found = self.db.execute(
            f"select * from read_parquet('{files}', hive_partitioning=false) where run = ? order by {order}",
            [run],
        )
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self.db.execute(query, list(values)).fetchall()


@pytest.fixture(scope="module")
def outcome(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    source, out = tmp_path_factory.mktemp("logs"), tmp_path_factory.mktemp("out")
    begin = "from anabranch.tools.cli import main; main()"
    demo = [sys.executable, "-c", begin, "demo", "--json", "--seconds", str(DEMO_S)]
    playing = subprocess.Popen([*demo, "--log-dir", source / "0-demo"], stdout=subprocess.DEVNULL)
    fate.record_trace(source / "trace", seed=1000, seconds=300.0)
    logs.write(source / "hand", logs.by_hand())
    logs.write(source / "chance", logs.by_chance(ROWS))
    logs.write(source / "dirty", logs.by_hand(), more=logs.DIRTY)
    logs.write(source / "dirty", logs.by_hand(), number=1)  # every record a second time
    (source / "dirty" / "a-9-00000.jsonl.part").write_bytes(b'{"kind":"li')
    (source / "empty").mkdir()
    for record in (skewed := logs.by_hand()):
        if record.peer == "b":
            record.ts += 3_600_000_000
    logs.write(source / "clocks", skewed)
    for variant, ages in (("bp", (10_000, 12_000, 14_000)), ("dp", (20_000, 20_000, 20_000))):
        for seed, age_us in enumerate(ages):
            logs.write(
                source / variant / f"seed-{seed}", [logs.delivery("b", 1 + n, n, age_us) for n in range(5)]
            )
    assert playing.wait(60) == 0
    return Outcome(source, out, run(spark, str(source), out, None, lambda _: None))


def test_links_by_hand(outcome: Outcome) -> None:
    ends = {(row["peer"], row["neighbour"]): row for row in outcome.rows("link_ends", "hand")}
    ab = ends["a", "b"]
    assert (ab["probes"], ab["lost"]) == (30, 4)
    assert ab["delay_mean_us"] == pytest.approx((22 * 10_000 + 4 * 30_000) / 26)
    assert ab["delay_p50_us"] == pytest.approx(10_000, rel=BOUND)
    assert ab["delay_p99_us"] == pytest.approx(30_000, rel=BOUND)
    assert (ab["delay_min_us"], ab["delay_max_us"]) == (10_000, 30_000)
    assert (ab["outages"], ab["flaps"], ab["is_flapping"]) == (1, 1, False)
    assert ab["observed_s"] == pytest.approx(30)
    assert ab["availability"] == pytest.approx(1 - 2.6 / 30)
    assert (ends["a", "c"]["outages"], ends["a", "c"]["down_s"]) == (1, 5.0)
    assert ends["b", "a"]["availability"] == 1


def test_outages_by_hand(outcome: Outcome) -> None:
    found = [
        (row["peer"], row["neighbour"], row["start"], row["end"], row["cause"], row["fault"])
        for row in outcome.rows("outages", "hand", "peer, neighbour, start")
    ]
    assert found == [
        ("a", "b", logs.at(5), logs.at(7.6), "probes lost", "link"),
        ("a", "c", logs.at(10), logs.at(15), "silent", "link"),
        ("a", "c", logs.at(25), logs.at(30), "closed by neighbour", "left"),
        ("c", "a", logs.at(10.1), logs.at(15), "silent", "link"),
    ]
    whole = {row["link"]: row for row in outcome.rows("links", "hand")}
    assert (whole["a - c"]["outages"], whole["a - c"]["down_s"]) == (1, 5.0)
    assert whole["a - b"]["availability_asymmetry"] == pytest.approx(2.6 / 30)


def test_degradation_by_hand(outcome: Outcome) -> None:
    (row,) = outcome.rows("degradations", "hand")
    assert (row["link"], row["start"], row["end"]) == ("a - b", logs.at(12), logs.at(16))
    assert (row["delay_us"], row["usual_us"]) == (30_000, 10_000)


def test_flows_by_hand(outcome: Outcome) -> None:
    (flow,) = outcome.rows("flows", "hand")
    assert (flow["topic"], flow["origin"], flow["subscriber"]) == ("t", "a", "b")
    assert (flow["delivered"], flow["expected"], flow["in_time"]) == (9, 10, 8)
    assert flow["delivery_ratio"] == pytest.approx(0.9)
    assert flow["deadline_hit_ratio"] == pytest.approx(0.8)
    assert flow["late_share"] == pytest.approx(1 / 9)
    assert flow["repeated_share"] == pytest.approx(2 / 11)
    assert flow["copies_share"] == pytest.approx(1 / 9)
    assert flow["age_p50_us"] == pytest.approx(10_000, rel=BOUND)
    assert flow["age_mean_us"] == pytest.approx((8 * 10_000 + 60_000) / 9)
    assert (flow["paths"], flow["main_path"], flow["main_path_share"]) == (2, "a > b", pytest.approx(6 / 9))
    (changes,) = outcome.rows("path_changes", "hand")
    assert (changes["changes"], changes["broken"], changes["faster"]) == (1, 1, 0)


def test_peers_and_control_by_hand(outcome: Outcome) -> None:
    peers = {row["peer"]: row for row in outcome.rows("peers", "hand")}
    assert (peers["a"]["published"], peers["a"]["control_bytes"], peers["a"]["data_bytes"]) == (10, 300, 2000)
    assert (peers["b"]["delivered"], peers["b"]["dropped"]) == (9, 2)
    kinds = {row["kind"]: (row["bytes"], row["share"]) for row in outcome.rows("control", "hand")}
    assert kinds == {"probe": (200, 0.5), "ack": (200, 0.5)}


def test_bad_rows_are_counted_kept_apart_and_explained(outcome: Outcome) -> None:
    reasons = {row["reason"]: row["rows"] for row in outcome.summary["intake"] if row["reason"]}
    assert reasons == {
        "cause is missing": 1,
        "a field of the wrong type, or broken JSON": 1,
        "unknown kind poetry": 1,
        "no kind": 1,
        "ts is impossible": 1,
        "no JSON object": 2,
        "torn line": 2,
    }
    kept = outcome.ask(
        f"select reason, text, file from read_parquet('{outcome.out}/records/kind=bad/*.parquet')"
    )
    assert len(kept) == sum(reasons.values()) == outcome.summary["records"]["bad"]
    assert any("poetry" in text for _, text, _ in kept)
    assert ("torn line", '{"kind":"li', "a-9-00000.jsonl.part") in kept


def test_records_that_stand_twice_count_once(outcome: Outcome) -> None:
    assert outcome.summary["records"]["repeated"] == len(logs.by_hand())
    for table in ("link_ends", "outages", "flows"):
        clean, dirty = outcome.rows(table, "hand", "2,3,4"), outcome.rows(table, "dirty", "2,3,4")
        assert [{**row, "run": ""} for row in clean] == [{**row, "run": ""} for row in dirty]


def test_clocks_that_are_apart_are_put_right(outcome: Outcome) -> None:
    used = {(row["run"], row["peer"]) for row in outcome.summary["clocks"]}
    assert used == {("clocks", "b")}
    (row,) = outcome.summary["clocks"]
    assert row["offset_us"] == pytest.approx(3_600_000_000, abs=row["error_us"])
    (run,) = outcome.rows("runs", "clocks")
    assert run["seconds"] < 60


def test_variants_with_their_confidence(outcome: Outcome) -> None:
    found = {row["variant"]: row for row in outcome.summary["variants"] if row["metric"] == "age_mean_us"}
    bp, dp = found["bp"], found["dp"]
    assert (dp["runs"], dp["mean"], dp["low"], dp["high"]) == (3, 20_000, 20_000, 20_000)
    half = 4.303 * 2_000 / math.sqrt(3)  # Student's t for two degrees of freedom
    assert (bp["mean"], bp["low"], bp["high"]) == pytest.approx((12_000, 12_000 - half, 12_000 + half))


def chance(outcome: Outcome) -> str:
    """The random run for DuckDB, which has to read it whole to know all of its fields."""
    return f"read_json('{outcome.source}/chance/*.jsonl', union_by_name=true, sample_size=-1)"


def test_links_by_chance_as_duckdb_has_them(outcome: Outcome) -> None:
    expected = outcome.ask(
        f"""select peer, neighbour, count(*), count(*) filter (rtt_us is null),
                   avg(rtt_us / 2.0), max(rtt_us / 2.0),
                   quantile_disc(rtt_us / 2.0, 0.5), quantile_disc(rtt_us / 2.0, 0.9),
                   quantile_disc(rtt_us / 2.0, 0.99), avg(jitter_us)
            from {chance(outcome)} where kind = 'probe'
            group by all order by all"""
    )
    rows = outcome.rows("link_ends", "chance", "peer, neighbour")
    assert len(rows) == len(expected) == 12
    for row, (peer, neighbour, probes, lost, mean, most, p50, p90, p99, jitter) in zip(
        rows, expected, strict=True
    ):
        assert (row["peer"], row["neighbour"], row["probes"], row["lost"]) == (peer, neighbour, probes, lost)
        assert (row["delay_mean_us"], row["delay_max_us"], row["jitter_us"]) == pytest.approx(
            (mean, most, jitter)
        )
        for name, exact in (("p50", p50), ("p90", p90), ("p99", p99)):
            assert row[f"delay_{name}_us"] == pytest.approx(exact, rel=BOUND, abs=1)


def test_outages_by_chance_as_read_from_start_to_end(outcome: Outcome) -> None:
    expected = logs.outages_of(logs.by_chance(ROWS))
    found: dict[logs.END, list[tuple[int, int]]] = {end: [] for end in expected}
    for row in outcome.rows("outages", "chance", "peer, neighbour, start"):
        found[row["peer"], row["neighbour"]].append((row["start"], row["end"]))
    assert found == expected
    assert sum(map(len, expected.values())) > ROWS / 1000


def test_flows_by_chance_as_duckdb_has_them(outcome: Outcome) -> None:
    expected = outcome.ask(
        f"""with each as (
              select origin, peer, seq, count as n, age_us, repeated, path, unnest(range(count))
              from {chance(outcome)} where kind = 'delivery')
            select origin, peer, count(*), max(seq + n) - min(seq),
                   count(*) filter (age_us <= 50000), avg(age_us),
                   quantile_disc(age_us, 0.5), quantile_disc(age_us, 0.99), count(distinct path)
            from each group by all order by all"""
    )
    rows = outcome.rows("flows", "chance", "origin, subscriber")
    assert len(rows) == len(expected) == 12
    for row, (origin, peer, n, span, in_time, mean, p50, p99, paths) in zip(rows, expected, strict=True):
        assert (row["origin"], row["subscriber"], row["delivered"], row["expected"]) == (
            origin,
            peer,
            n,
            span,
        )
        assert (row["in_time"], row["paths"]) == (in_time, paths)
        assert row["age_mean_us"] == pytest.approx(mean)
        assert row["age_p50_us"] == pytest.approx(p50, rel=BOUND, abs=1)
        assert row["age_p99_us"] == pytest.approx(p99, rel=BOUND, abs=1)


def test_the_report_needs_nothing_else(outcome: Outcome) -> None:
    text = (outcome.out / "report.html").read_text()
    assert "http://www.w3.org/2000/svg" in text
    assert not [word for word in ("<script", "src=", "href=", "url(", "@import") if word in text]
    assert "a - c was down" in text
    assert json.loads((outcome.out / "summary.json").read_text()) == json.loads(json.dumps(outcome.summary))


def test_nothing_to_read_is_said(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no directory"):
        analyze(spark, str(tmp_path / "nowhere"), str(tmp_path / "out"))
    (tmp_path / "logs").mkdir()
    with pytest.raises(UsageError, match="no log records"):
        analyze(spark, str(tmp_path / "logs"), str(tmp_path / "out"))


def test_the_degraded_and_the_dead_link_of_the_demonstration_are_found(outcome: Outcome) -> None:
    down = {row["link"]: row for row in outcome.rows("links", "0-demo")}
    assert [name for name, row in down.items() if row["outages"]] == ["p1 - p3"]
    assert 1.0 < down["p1 - p3"]["down_s"] < DEMO_S / 2
    slow = {row["link"] for row in outcome.rows("degradations", "0-demo") if row["delay_us"] > 80_000}
    assert slow == {"p2 - p5"}


PROBE = """<script>
const seen = [...document.querySelectorAll('rect[data-link]')].map(r => [
  r.getAttribute('class'), r.dataset.link,
  r.getBoundingClientRect().width > 1, getComputedStyle(r).fill]);
document.body.textContent = JSON.stringify({seen, list: document.querySelectorAll('#findings li').length,
  plots: [...document.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().height > 20).length});
</script>"""


def test_a_browser_shows_both_links(outcome: Outcome, tmp_path: Path) -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no Chromium: apt install chromium")
    page = tmp_path / "page.html"
    page.write_text((outcome.out / "report.html").read_text().replace("</body>", PROBE + "</body>"))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"]
    flags += [f"--user-data-dir={tmp_path / 'browser'}", "--no-first-run", "--disable-background-networking"]
    done = subprocess.run(
        [chromium, *flags, page.as_uri()], capture_output=True, text=True, timeout=100, check=True
    )
    shown = json.loads(done.stdout[done.stdout.index('{"seen"') : done.stdout.rindex("}") + 1])
    assert ["down", "p1 - p3", True, "rgb(192, 57, 43)"] in shown["seen"]
    assert ["degraded", "p2 - p5", True, "rgb(230, 159, 0)"] in shown["seen"]
    assert shown["list"] == len(outcome.summary["findings"])
    assert shown["plots"] >= 4


def test_links_of_one_cable_are_found_and_a_target_is_kept_with_the_profile(outcome: Outcome) -> None:
    profile = load_profile(outcome.out / "profile.json")
    (group,) = [each for each in profile.groups if ("duct-1", "target") in each.links]
    assert sorted(group.links) == sorted(fate.CABLE)
    down = sum(end - begin for begin, end in fate.cuts(1000, 300.0))
    assert group.availability == pytest.approx(1 - down / 300, abs=0.03)
    target, seconds = 0.999, 120.0
    with_it = [fate.delivered(seed, seconds, profile, target) for seed in range(SEEDS)]
    without = [fate.delivered(seed, seconds, None, target) for seed in range(SEEDS)]
    assert min(with_it) >= target
    assert sum(without) / SEEDS < target
