"""The bench as its users call it, with very short measurements."""

import json
import subprocess
import sys

LAUNCH = "from anabranch.tools.bench.cli import bench_app; bench_app()"


def _bench(*arguments: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH, *arguments, "--json"], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert isinstance(printed, dict)
    return printed


def test_throughput_next_to_raw_sockets() -> None:
    printed = _bench("throughput", "--size", "64", "--against", "raw", "--seconds", "0.2", "--warmup", "0.1")
    assert printed["bench"] == "throughput"
    assert printed["skipped"] == []
    results = {row["system"]: row for row in printed["results"]}  # type: ignore[attr-defined]
    assert set(results) == {"anabranch", "raw"}
    for row in results.values():
        assert row["size"] == 64
        assert row["messages_per_second"] > 1000
        assert row["received"] == row["sent"] > 0
    (ratio,) = printed["ratios"]  # type: ignore[misc]
    expected = results["anabranch"]["messages_per_second"] / results["raw"]["messages_per_second"]
    assert (ratio["to"], ratio["size"]) == ("raw", 64)
    assert abs(ratio["ratio"] - expected) < 0.01


def test_changes_of_a_site_are_in_effect_elsewhere_within_a_flooding_time() -> None:
    printed = _bench("matching", "--filters", "100", "--sites", "0", "--changes", "1000")
    _, row = printed["results"]  # type: ignore[misc]
    assert row["made_per_second"] > 500
    assert 0 < row["p50_us"] < 300_000, "attributes_interval_s, and two links"
    assert row["control_bytes_per_second"] < 50_000, "1,000 records a second would be 250 kB"
