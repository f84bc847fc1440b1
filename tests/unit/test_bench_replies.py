"""What `anabranch bench replies` makes of its runs, and whom it asks."""

import pytest
from typer.testing import CliRunner

from anabranch.overlay.errors import UsageError
from anabranch.tools.bench import cli
from anabranch.tools.bench.replies import layout
from anabranch.tools.bench.replies.tally import Run, row_of

FIVE = [[abs(a - b) * 0.01 for b in range(5)] for a in range(5)]


def test_a_scenario_has_as_many_repliers_on_as_many_peers_as_its_name_says() -> None:
    plan = layout.tree(*layout.made_up())
    assert len(plan.names) == layout.PEERS
    for scenario in layout.SCENARIOS:
        each, peers = map(int, scenario.split("x"))
        repliers = plan.repliers(scenario)
        assert list(repliers.values()) == [each] * peers
    (far,) = plan.repliers("1x1")
    assert plan.depth(far) == layout.FAR_HOPS


def test_a_tree_follows_the_delays_and_no_peer_has_too_many_children() -> None:
    plan = layout.tree(list("abcde"), FIVE)
    assert (plan.names, plan.parents) == (list("abcde"), [-1, 0, 1, 2, 3])
    large = layout.tree(*layout.made_up())
    assert max(large.children(peer) for peer in range(layout.PEERS)) == layout.CHILDREN_MAX
    assert all(parent < peer for peer, parent in enumerate(large.parents)), "parents come first"


def test_a_row_tells_runs_that_lack_replies_and_what_a_silence_would_have_cut_off() -> None:
    whole = Run(0.050, [0.010, 0.020], 2, True, 3)
    partial = Run(1.020, [0.020], 1, False, 1)
    row = row_of("1x10", "datagram", 0.5, 2, [whole, whole, whole, partial])
    assert (row["runs"], row["complete_runs"], row["delivered"]) == (4, 3, 0.875)
    assert (row["p50_ms"], row["p99_ms"], row["root_messages"]) == (50.0, 1020.0, 3)
    assert dict(row["by_tau"])[5] == 0.0
    assert dict(row["by_tau"])[10] == 0.75
    assert dict(row["by_tau"])[20] == 0.875
    merged = row_of("1x10", "merge", 0.0, 2, [Run(0.03, [], 2, True, 1)])
    assert merged["cdf_ms"][0] == merged["cdf_ms"][-1] == 30.0
    assert "by_tau" not in merged


def test_a_run_counts_as_complete_only_with_all_replies() -> None:
    row = row_of("1x10", "converge", 0.0, 3, [Run(0.05, [0.01, 0.02], 2, True, 2)])
    assert row["complete_runs"] == 0


@pytest.mark.parametrize(
    ("option", "text", "fix"),
    [
        ("--scenario", "1x2", "none of 1x1, 10x1"),
        ("--protocol", "pigeon", "none of converge, merge"),
        ("--load", "much", "from 0 to 1000"),
        ("--against", "kafka", "none of zenoh, nats"),
        ("--runs", "0", "must be from 1"),
        ("--processes", "51", "must be from 0 to 50"),
    ],
)
def test_a_wrong_option_names_itself_and_the_fix(option: str, text: str, fix: str) -> None:
    done = CliRunner().invoke(cli.bench_app, ["replies", option, text])
    assert isinstance(done.exception, UsageError)
    assert option in str(done.exception)
    assert fix in str(done.exception)
