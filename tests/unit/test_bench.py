"""What the bench makes of its measurements, its options, and of processes that fail."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from anabranch.overlay.errors import UsageError
from anabranch.tools.bench import child as child_module
from anabranch.tools.bench import cli, measuring, scenarios, systems
from anabranch.tools.bench.children import Child, Children
from anabranch.tools.bench.jobs import BenchError, Job
from anabranch.tools.bench.measuring import MemorySamples, Meter, Pace, RoundTrips, percentile
from anabranch.tools.bench.summary import (
    best_variant,
    median_rows,
    parse_against,
    parse_number,
    parse_sizes,
    ratios,
)


def test_sizes_are_parsed_in_order_and_once() -> None:
    assert parse_sizes("1024, 64,1024") == [1024, 64]


@pytest.mark.parametrize("text", ["", "64,", "0", "-1", "1k", "64;1024", str(16 * 1024 * 1024 + 1)])
def test_a_wrong_size_names_itself_and_the_fix(text: str) -> None:
    with pytest.raises(UsageError, match="bytes from 1 to 16777216") as caught:
        parse_sizes(text)
    assert repr(text) in str(caught.value)


def test_against_knows_its_systems_and_none() -> None:
    assert parse_against("zenoh, raw,zenoh") == ["zenoh", "raw"]
    assert parse_against("none") == []
    with pytest.raises(
        UsageError, match=r"'kafka' is not a known system; choose from raw, raw_blocking, zenoh, nats"
    ):
        parse_against("raw,kafka")


@pytest.mark.parametrize("value", [0.0, -1.0, 1e9, float("nan"), float("inf")])
def test_a_number_outside_its_limits_names_the_option(value: float) -> None:
    with pytest.raises(UsageError, match=r"--seconds .*must be from"):
        parse_number("--seconds", value, 0.05, 3600)


def _row(system: str, size: int, rate: float, **more: Any) -> dict[str, Any]:
    return {
        "system": system,
        "size": size,
        "messages_per_second": rate,
        "sent": 10,
        "received": 9,
        "lost": 1,
        **more,
    }


def test_medians_per_cell_sum_the_losses_and_keep_the_runs() -> None:
    rows = [_row("a", 64, rate) for rate in (10.0, 50.0, 20.0)] + [_row("b", 64, 4.0)]
    first, second = median_rows(rows, ("system", "size"), ("messages_per_second",))
    assert (first["system"], first["messages_per_second"]) == ("a", 20.0)
    assert (first["sent"], first["received"], first["lost"]) == (30, 27, 3)
    assert [run["messages_per_second"] for run in first["runs"]] == [10.0, 50.0, 20.0]
    assert second["messages_per_second"] == 4.0
    assert "runs" not in second


def test_the_best_variant_counts_and_the_others_are_told() -> None:
    rows = [_row("z", 64, 5.0, variant="slow"), _row("z", 64, 9.0, variant="quick")]
    best = best_variant(rows, "messages_per_second", highest=True)
    assert best["variant"] == "quick"
    assert best["variants"] == {"slow": 5.0, "quick": 9.0}
    assert best_variant(rows, "messages_per_second", highest=False)["variant"] == "slow"


def test_a_lucky_run_of_a_variant_does_not_make_it_the_best() -> None:
    rates = {"steady": (10.0, 11.0, 10.0), "lucky": (5.0, 30.0, 5.0)}
    rows = [_row("raw", 64, rates[variant][run], variant=variant) for run in range(3) for variant in rates]
    rows = [{**row, "sender_cpu_us_per_message": 1.0} for row in rows]
    (best,) = cli._best_variants(rows, ("messages_per_second", "sender_cpu_us_per_message"), highest=True)
    assert (best["variant"], best["messages_per_second"]) == ("steady", 10.0)
    assert best["variants"] == {"steady": 10.0, "lucky": 5.0}


def test_ratios_compare_the_same_size_only() -> None:
    rows = [
        _row("anabranch", 64, 30.0),
        _row("zenoh", 64, 10.0),
        _row("anabranch", 1024, 8.0),
        _row("zenoh", 1024, 16.0),
    ]
    assert ratios(rows, "messages_per_second", by="system", of="anabranch", same=("size",)) == [
        {"to": "zenoh", "size": 64, "ratio": 3.0},
        {"to": "zenoh", "size": 1024, "ratio": 0.5},
    ]


def test_round_trip_ratios_have_both_percentiles() -> None:
    rows = [
        {"system": "anabranch", "size": 64, "p50_us": 150.0, "p99_us": 300.0},
        {"system": "raw", "size": 64, "p50_us": 100.0, "p99_us": 400.0},
    ]
    found = ratios(rows, "p50_us", by="system", of="anabranch", same=("size",), also=("p50_us", "p99_us"))
    assert found == [{"to": "raw", "size": 64, "ratio": 1.5, "p50_ratio": 1.5, "p99_ratio": 0.75}]


class Clock:
    """Stands in for the time module of `measuring`."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def perf_counter_ns(self) -> int:
        return int(self.now * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(measuring, "time", clock)
    return clock


def test_the_rate_leaves_out_the_warm_up(clock: Clock) -> None:
    job = Job(system="raw", role="receive", size=64, warmup_s=1.0)
    meter = Meter(job)
    count = meter.next_mark
    meter.mark(count, 64)
    for pause in [1.0] * 2 + [0.5] * 4:  # slow while it warms up, then twice as fast
        clock.now += pause
        count = meter.next_mark
        meter.mark(count, 64)
    result = meter.result(count)
    assert result["received"] == 1 + 6 * job.burst
    assert result["messages_per_second"] == pytest.approx(5 * job.burst / 3.0)


def test_too_few_messages_and_wrong_sizes_are_errors(clock: Clock) -> None:
    meter = Meter(Job(system="raw", role="receive", size=64))
    meter.mark(1, 64)
    with pytest.raises(BenchError, match="--seconds"):
        meter.result(1)
    with pytest.raises(BenchError, match="65 bytes instead of 64"):
        meter.mark(2, 65)


def test_a_receiver_waits_for_the_rest_but_not_forever(clock: Clock) -> None:
    meter = Meter(Job(system="raw", role="receive"))
    assert not meter.drained(5, None)
    assert meter.drained(10, 10)
    assert not meter.drained(9, 10)
    clock.now += measuring.QUIET_S + 0.1
    assert meter.drained(9, 10)


def test_a_sender_stops_in_time_and_counts_only_what_it_sent_warm(clock: Clock) -> None:
    job = Job(system="raw", role="send", size=64, warmup_s=1.0, seconds=2.0)
    pace = Pace(job)
    bursts = 0
    while pace.more():
        bursts += 1
        clock.now += 0.5
        assert bursts < 100
    assert pace.sent == bursts * job.burst == 6 * job.burst
    assert pace.result()["measured"] == 4 * job.burst


def test_a_sender_keeps_to_its_rate_and_number(clock: Clock) -> None:
    pace = Pace(Job(system="raw", role="send", size=64, messages=300, rate=100.0))
    bursts = []
    while burst := pace.more():
        bursts.append(burst)
        clock.now += pace.pause_s()
    assert bursts == [256, 44]
    assert clock.now == pytest.approx(103.0)


def test_memory_is_sampled_each_tenth() -> None:
    samples = MemorySamples(1000)
    for count in range(0, 1001, 25):
        samples.look(count)
    assert [sample["messages"] for sample in samples.samples] == list(range(100, 1001, 100))
    assert all(sample["rss_bytes"] > 1_000_000 for sample in samples.samples)
    assert MemorySamples(0).samples == []


def test_round_trips_before_the_warm_up_ended_don_t_count(clock: Clock) -> None:
    trips = RoundTrips(Job(system="raw", role="ping", warmup_s=1.0, seconds=1.0))
    second = 1_000_000_000
    start = 100 * second
    assert trips.note(start, start + 900)
    assert trips.note(start + second, start + second + 5_000)
    assert not trips.note(start + 2 * second - 1, start + 2 * second + 7_000)
    assert trips.result() == {"p50_us": 7.001, "p99_us": 7.001, "round_trips": 2}


def test_percentiles_by_nearest_rank() -> None:
    values = list(range(1, 101))
    assert percentile(values, 0.5) == 51
    assert percentile(values, 0.99) == 100
    assert percentile([7], 0.99) == 7


def test_absent_systems_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    library = systems.System("x", (), (), library="no_such_package_here", install="anabranch[bench]")
    assert "'no_such_package_here' is not installed: pip install 'anabranch[bench]'" in library.missing()
    monkeypatch.setenv("PATH", "")
    binary = systems.System("x", (), (), binary="nats-server")
    assert "'nats-server' is not on PATH" in binary.missing()
    assert systems.RIVALS["raw"].missing() == ""


def _fake_throughput(_: Any, system: str, variant: str, size: int) -> dict[str, Any]:
    rate = {"anabranch": 2000.0, "raw": 500.0}[system]
    return _row(system, size, rate, variant=variant, sender_cpu_us_per_message=1.0)


def test_the_json_has_the_agreed_form_and_names_who_was_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "throughput", _fake_throughput)
    absent = systems.System("nats", ("callback",), ("callback",), library="no_such_package_here")
    monkeypatch.setitem(systems.RIVALS, "nats", absent)
    arguments = ["throughput", "--size", "64", "--against", "raw,nats", "--runs", "3", "--json"]
    result = CliRunner().invoke(cli.bench_app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    assert printed["bench"] == "throughput"
    assert [(row["system"], row["messages_per_second"]) for row in printed["results"]] == [
        ("anabranch", 2000.0),
        ("raw", 500.0),
    ]
    assert len(printed["results"][0]["runs"]) == 3
    assert printed["ratios"] == [{"to": "raw", "size": 64, "ratio": 4.0}]
    assert [skip["system"] for skip in printed["skipped"]] == ["nats"]
    assert "no_such_package_here" in printed["skipped"][0]["reason"]
    assert "skipped nats" in result.stderr


def test_without_json_a_table_goes_to_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "throughput", _fake_throughput)
    result = CliRunner().invoke(cli.bench_app, ["throughput", "--size", "64", "--against", "raw"])
    assert result.exit_code == 0
    assert "2,000" in result.stdout
    assert "anabranch" in result.stdout
    assert "{" not in result.stdout


def test_fanout_gives_the_cost_per_link(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(_: Any, peers: int, size: int) -> dict[str, Any]:
        cost = {1: 2.0, 8: 2.5}[peers]
        return _row("anabranch", size, 1.0, peers=peers, cpu_us_per_message_per_link=cost)

    monkeypatch.setattr(scenarios, "fanout", fake)
    result = CliRunner().invoke(cli.bench_app, ["fanout", "--json"], catch_exceptions=False)
    (ratio,) = json.loads(result.stdout)["ratios"]
    assert (ratio["to"], ratio["ratio"], ratio["per_link_cost"], ratio["peers"]) == ("one", 1.25, 1.25, 8)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["throughput", "--size", "x"], "--size 'x'"),
        (["rtt", "--against", "x"], "--against 'x'"),
        (["relay", "--seconds", "0"], "--seconds 0"),
        (["throughput", "--runs", "0"], "--runs 0"),
        (["fanout", "--peers", "1"], "--peers 1"),
        (["memory", "--messages", "5"], "--messages 5"),
    ],
)
def test_wrong_options_are_usage_errors(arguments: list[str], named: str) -> None:
    with pytest.raises(UsageError) as caught:
        CliRunner().invoke(cli.bench_app, arguments, catch_exceptions=False)
    assert named in str(caught.value)


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts a child that runs a script of the test instead of a job."""

    def start(children: Children, script: str) -> Child:
        module = tmp_path / "scripted_role.py"
        module.write_text(f"import os, sys, time\ndef act(job, parent):\n    {script}\n")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
        launcher = (
            "import sys, anabranch.tools.bench.child as c; c.MODULES['test'] = 'scripted_role'; c.main()"
        )
        monkeypatch.setattr("anabranch.tools.bench.children.COMMAND", [sys.executable, "-c", launcher])
        return children.start(Job(system="test", role="act"))

    return start


def test_a_failed_child_shows_what_it_wrote(scripted: Any) -> None:
    with Children() as children:
        child = scripted(children, "raise SystemExit('the disk is on fire')")
        with pytest.raises(
            BenchError, match=r"ended with code 1 instead of reporting 'ready'(?s:.*)disk is on fire"
        ):
            child.expect("ready", 20)


def test_a_child_that_hangs_is_timed_out_and_killed(scripted: Any) -> None:
    with Children() as children:
        child = scripted(children, "parent.report('ready', pid=os.getpid()); time.sleep(600)")
        pid = child.expect("ready", 20)["pid"]
        with pytest.raises(BenchError, match="did not report 'result' within 0 s"):
            child.expect("result", 0.1)
        directory = Path(children._directory)
        assert directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not directory.exists()


def test_an_interrupt_ends_the_children(scripted: Any) -> None:
    def interrupted() -> None:
        with Children() as children:
            child = scripted(children, "parent.report('ready', pid=os.getpid()); time.sleep(600)")
            pids.append(child.expect("ready", 20)["pid"])
            raise KeyboardInterrupt

    pids: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_a_child_ends_when_its_parent_is_gone(scripted: Any) -> None:
    with Children() as children:
        child = scripted(children, "parent.report('ready'); time.sleep(600)")
        child.expect("ready", 20)
        assert child._process.stdin is not None
        child._process.stdin.close()
        assert child._process.wait(20) == 3


def test_orders_reach_the_child(scripted: Any) -> None:
    script = "parent.wait_stop(); parent.report('result', expected=parent.expected)"
    with Children() as children:
        child = scripted(children, script)
        child.tell(expected=7)
        child.tell(stop=True)
        assert child.expect("result", 20)["expected"] == 7
        child.wait_end(time.monotonic() + 20)


def test_every_system_has_a_module() -> None:
    assert set(child_module.MODULES) == {systems.PRODUCT.name, *systems.RIVALS, "replies"}
