"""`anabranch bench replies`: what of it runs in virtual time."""

import json
from pathlib import Path

from typer.testing import CliRunner

from anabranch.tools.bench import cli
from anabranch.tools.bench.replies import layout
from anabranch.tools.bench.replies.simulated import recorded, simulated_rows


def test_requests_in_virtual_time_take_what_the_delays_ask_for(tmp_path: Path) -> None:
    names, delays = layout.made_up()
    trace = tmp_path / "places.csv"
    lines = ["source,target,rtt_ms"]
    lines += [
        f"{a},{b},{2000 * delays[i][j]:.3f}"
        for i, a in enumerate(names)
        for j, b in enumerate(names)
        if a != b
    ]
    trace.write_text("\n".join(lines) + "\n")
    plan, one_way = recorded(trace, 1)
    scenarios = {name: plan.repliers(name) for name in ("1x1", "10x50")}
    rows = simulated_rows(
        plan, one_way, scenarios, ["converge", "merge", "datagram"], 0.0, 1, 1.0, lambda _: None
    )
    for row in rows:
        assert (row["complete_runs"], row["delivered"]) == (1, 1.0)
        assert 1.0 <= row["times_slowest"] <= 1.3
    by = {(row["scenario"], row["protocol"]): row for row in rows}
    assert by["10x50", "merge"]["root_messages"] == by["10x50", "merge"]["children"]
    assert by["10x50", "datagram"]["times_slowest"] <= by["10x50", "converge"]["times_slowest"]


def test_the_cost_model_is_measured_per_depth() -> None:
    done = CliRunner().invoke(cli.bench_app, ["replies", "--costs", "--json"], catch_exceptions=False)
    rows = json.loads(done.stdout)["results"]
    by = {(row["algorithm"], row["depth"]): row for row in rows}
    assert [by["stateless", depth]["messages"] for depth in range(4)] == [81, 27, 9, 3]
    for depth in range(4):
        assert by["merge, P > R", depth]["messages"] == 3
        assert by["stateless", depth]["O(messages)"] == by["stateless", depth]["messages"]
    assert by["merge, P <= R", 0]["bytes"] < by["merge, P > R", 0]["bytes"]
    assert all(by["stateless", depth]["state"] == 0 for depth in (1, 2, 3))
