"""`anabranch sim` as people call it: a process, its output, its exit code."""

import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "scenarios"
MAIN = "from anabranch.tools.cli import main; main()"
CALL = [sys.executable, "-c", MAIN, "sim"]


def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CALL, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"COLUMNS": "100"} | environment,
    )


def test_without_a_file_the_builtin_scenario_runs_and_is_shown() -> None:
    done = call("--seconds", "24", "--variants", "bp")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no progress bar where nobody watches
    for text in ("five peers: bp", "s5.t1", "fail p2-p5 for 8 s", "events per second", "seed 1:", "trace "):
        assert text in done.stdout
    assert "Traceback" not in done.stderr


def test_json_is_one_object_and_the_same_again_on_any_number_of_cores() -> None:
    arguments = ("--json", "--runs", "2", "--seed", "5", "--variants", "dp,bp", "--seconds", "28")
    printed = [call(*arguments, PYTHONHASHSEED=salt) for salt in ("1", "2")]
    first, again = (json.loads(done.stdout) for done in printed)
    assert first.pop("performance")["events_per_s"] > 0
    again.pop("performance")
    assert first == again
    assert first["variants"]["dp"]["loss"] > first["variants"]["bp"]["loss"]
    seeds = [trace["seed"] for trace in first["variants"]["bp"]["traces"]]
    assert seeds == [5, 6]


@pytest.mark.parametrize("name", ["churn", "random-failures"])
def test_examples_keep_every_invariant(name: str) -> None:
    done = call(str(EXAMPLES / f"{name}.toml"), "--seconds", "26", "--runs", "1", "--check", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    for numbers in result["variants"].values():
        assert numbers["delivered"] > 300
        assert numbers["events"]


def test_logs_stand_by_variant_and_seed(tmp_path: Path) -> None:
    done = call("--seconds", "6", "--variants", "dp,bp", "--log-dir", str(tmp_path / "logs"), "--json")
    assert done.returncode == 0, done.stderr
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.jsonl"))
    assert len(written) == 10
    assert written[0].startswith("logs/bp/seed-1/p1-")
    record = json.loads((tmp_path / written[0]).read_text().splitlines()[0])
    assert {"kind", "ts", "peer", "epoch"} <= record.keys()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["absent.toml"], "scenario 'absent.toml': No such file or directory"),
        (["--variants", "dp,xp"], "--variants dp,xp: unknown variant 'xp': one of dp, bp"),
        (["--variants", ","], "--variants ',': name at least one"),
        (["--runs", "0"], "--runs 0: from 1 to 1,000"),
        (["--seconds", "2"], "--seconds 2: run.warmup_s = 3.0: must be below"),
        (["--seconds", "nan"], "--seconds nan: above 0"),
        (["--log-dir", "/dev/null/logs", "--seconds", "4"], "log directory '/dev/null/logs/dp/seed-1'"),
    ],
)
def test_what_cannot_work_ends_with_code_2_and_says_why(arguments: list[str], complaint: str) -> None:
    done = call(*arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stdout == ""


def test_a_bad_file_is_named_with_its_key(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("[[peers]]\nname = 'a'\n[[events]]\nat_s = 1\ndo = 'crash'\npeer = 'b'\n")
    done = call(str(path))
    assert done.returncode == 2
    assert f"{path}: events[1].peer: no peer 'b': one of a" in done.stderr


@pytest.mark.parametrize("recovery", [False, True], ids=["paths alone", "with recovery"])
def test_harmony_s_failures_order_the_variants_as_the_paper_does(tmp_path: Path, recovery: bool) -> None:
    """A link that matters dies. The direct path loses most, two paths nothing; recovery, which the paper
    doesn't have, brings the rest, too late for some."""
    file = tmp_path / "failures.toml"
    text = (EXAMPLES / "harmony-failures.toml").read_text()
    assert "\n[config]" not in text
    file.write_text(text if recovery else f"{text}\n[config]\nrecovery = false\n")
    variants = ("dp", "bp+qos", "bp+qos+mp", "adaptive")
    options = ("--preset", "default", "--seconds", "210", "--seed", "4", "--runs", "1", "--json")
    done = call(str(file), *options, "--variants", ",".join(variants))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["variants"]
    assert list(found) == list(variants)
    assert found["dp"]["loss"] > 4 * found["adaptive"]["loss"]
    assert found["bp+qos+mp"]["loss_where_path_existed"] == 0
    spoilt = {name: row["loss"] + row["late_share"] for name, row in found.items()}
    assert spoilt["dp"] > spoilt["bp+qos"] > spoilt["adaptive"] > spoilt["bp+qos+mp"] == 0
    if recovery:
        assert found["bp+qos"]["loss"] == found["adaptive"]["loss"] == 0
    else:
        assert found["bp+qos"]["loss"] > found["adaptive"]["loss"] > 0
    assert found["adaptive"]["data_bytes"] < 1.1 * found["bp+qos"]["data_bytes"]
    assert found["bp+qos+mp"]["data_bytes"] > 1.8 * found["bp+qos"]["data_bytes"]
    wanted = {"loss", "late_share", "latency_ms", "data_bytes", "control_bytes_per_s", "switches"}
    assert wanted | {"reroute_s", "pairs"} <= set(found["adaptive"])
    assert wanted <= set(found["dp"]["pairs"]["s5.t1"])
    assert {"p50", "p99", "p999"} <= set(found["adaptive"]["latency_ms"])
    assert {"p50", "p99"} <= set(found["adaptive"]["reroute_s"])
    assert 0 < found["adaptive"]["control_bytes_per_s"] < 7800


def test_an_unknown_preset_names_the_known_ones() -> None:
    done = call("--preset", "paper")
    assert done.returncode == 2
    assert "paper" in done.stderr
    assert "harmony" in done.stderr


BUSY = """
from anabranch.tools.scenarios.builtin import five_peers
from anabranch.tools.scenarios.narrowing import narrowed
from anabranch.tools.scenarios.running import run_jobs
from anabranch.tools.scenarios.simulating import Job
jobs = [Job(narrowed(five_peers(), seconds), "bp", 1) for seconds in (4, 50_000, 50_000)]
run_jobs(jobs, lambda share: print("busy", flush=True), processes=2)
"""


def test_nothing_goes_on_simulating_when_the_command_is_killed() -> None:
    command = [sys.executable, "-c", BUSY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as killed:
        assert killed.stdout is not None
        try:
            assert killed.stdout.readline() == "busy\n"
            children = Path(f"/proc/{killed.pid}/task/{killed.pid}/children").read_text().split()
            watched = [os.pidfd_open(int(child)) for child in children]
            assert len(watched) >= 2
        finally:
            killed.kill()
        for child in watched:
            assert select.select([child], [], [], 30)[0], "a process outlived the command"
            os.close(child)
