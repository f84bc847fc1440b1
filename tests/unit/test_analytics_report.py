"""The report and what leads to it, without Spark: from a summary that is made by hand."""

from pathlib import Path
from typing import Any

from anabranch.tools.analytics import plots
from anabranch.tools.analytics.following import late_of
from anabranch.tools.analytics.loading import PACKED, bytes_of
from anabranch.tools.analytics.report import report_of
from anabranch.tools.analytics.summary import findings

RUN = {"run": ".", "start": 0, "seconds": 10.0}
EVIL = "<script>alert('x')</script>\"&"


def summary(name: str = "a - b") -> dict[str, Any]:
    link = {
        "run": ".", "link": name, "a": name, "b": "b", "availability": 0.5, "outages": 1, "down_s": 5.0,
        "loss": 0.0, "delay_p50_us": 1000.0, "delay_asymmetry": 1.0, "loss_asymmetry": 0.0,
        "is_flapping": False, "observed_s": 10.0,
    }  # fmt: skip
    request = {
        "run": ".", "topic": name, "protocol": "ker", "merge": "", "requests": 3, "complete": 1, "asked": 9,
        "answered": 6, "declined": 0, "missing": 3, "missing_most": name, "duration_max_us": 5,
    }  # fmt: skip
    empty = "degradations shared_fate flows peers control anomalies ages path_changes"
    whole: dict[str, Any] = {name: [] for name in empty.split()}
    return whole | {
        "records": {"rows": 9, "bad": 0, "repeated": 0},
        "intake": [],
        "runs": [RUN],
        "links": [link],
        "outages": [{"run": ".", "link": name, "start": 0, "end": 5, "seconds": 5.0, "cause": name}],
        "requests": [request],
        "clocks": [{"run": ".", "peer": name, "offset_us": 9_000_000, "error_us": 250_000}],
        "variants": [variant("bp")],
        "delays": [{"run": ".", "link": name, "points": [(0, 1000.0), (1, None), (2, 1000.0)]}],
        "findings": [name],
    }


def variant(name: str) -> dict[str, Any]:
    return {"variant": name, "metric": "age_mean_us", "runs": 1, "mean": 5.0, "low": None, "high": None}


def test_names_from_logs_stay_text() -> None:
    text = report_of(summary(EVIL))
    assert "<script" not in text
    assert text.count("&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&quot;&amp;") > 5


def test_variants_are_drawn_when_there_is_something_to_compare() -> None:
    alone = summary()
    assert "Variants" not in report_of(alone)
    alone["variants"].append(variant("dp"))
    assert "Variants" in report_of(alone)


def test_requests_and_clocks_are_told() -> None:
    told = findings(summary())
    assert "2 of 3 requests on a - b stayed incomplete, most often a - b" in told
    assert "the clock of a - b is off by 9.0 s; corrected" in told
    text = report_of(summary())
    assert "9 records of 0 peers in 1 run." in text
    assert "<h2>Requests</h2>" in text
    assert "<h2>Clocks that were put right</h2>" in text


def test_a_line_of_delays_has_a_gap_where_nothing_came_back() -> None:
    def drawn(*delays: float | None) -> int:
        points = [(number * 1_000_000, us) for number, us in enumerate(delays)]
        return plots.delays([{"link": "a - b", "points": points}], RUN).count("<polyline")

    assert [drawn(1.0, 2.0, 3.0), drawn(1.0, None, 3.0, 4.0), drawn(None, 1.0, None)] == [1, 2, 1]
    assert plots.delays([{"link": "a - b", "points": [(0, None)]}], RUN) == ""
    silent = [(0, 1.0), (1, 1.0), (2, 1.0), (8, 1.0), (9, 1.0)]
    assert plots.delays([{"link": "a - b", "points": silent}], RUN).count("<polyline") == 2


def test_packed_logs_count_as_much_larger_and_other_systems_are_not_asked(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for name in ("a.jsonl", "b.jsonl.part", "c.jsonl.gz", "p1.stderr"):
        (tmp_path / "run" / name).write_bytes(b"x" * 100)
    assert bytes_of(str(tmp_path)) == 200 + 100 * PACKED
    assert bytes_of("s3a://bucket/logs") is None


def test_what_comes_too_late_is_told() -> None:
    operators = [{"numRowsDroppedByWatermark": 2}, {"numRowsDroppedByWatermark": 1}]
    assert "for 3 rows" in late_of({"stateOperators": operators})
    assert late_of({"stateOperators": []}) == ""
