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
