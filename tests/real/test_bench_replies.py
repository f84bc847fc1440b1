"""`anabranch bench replies` on real sockets, small."""

from anabranch.tools.bench.replies import layout
from anabranch.tools.bench.replies.real import mesh_rows


def test_a_small_mesh_of_two_processes_is_measured() -> None:
    plan = layout.Plan(["root", "left", "right", "below"], [-1, 0, 0, 1])
    scenarios = {"2x4": dict.fromkeys(range(4), 2)}
    told: list[object] = []
    rows = mesh_rows(plan, scenarios, ["converge", "merge", "direct"], 1.0, 3, 1.0, 2, told.append)
    assert told == rows
    for row in rows:
        assert (row["runs"], row["complete_runs"], row["delivered"], row["repliers"]) == (3, 3, 1.0, 8)
        assert 0 < row["p50_ms"] <= row["p99_ms"]
    by = {row["protocol"]: row for row in rows}
    assert by["merge"]["root_messages"] == by["merge"]["children"] == 2
    assert by["direct"]["root_messages"] == 6
