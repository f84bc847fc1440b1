"""`anabranch testbed` as people call it: real peers, both backends that need no module, and no leftovers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from anabranch.tools.testbed.backends import BackendKind, why_not

ROOT = Path(__file__).parents[2]
SMOKE = ROOT / "examples" / "scenarios" / "smoke.toml"
COMMANDS = ROOT / "examples" / "scenarios" / "command-and-control.toml"
CALL = [sys.executable, "-c", "from anabranch.tools.cli import main; main()"]
TWENTY_MS = """
[run]
duration_s = 7
warmup_s = 3
drain_s = 0.5
[network]
mesh = "full"
delay_ms = 20
[[peers]]
name = "p"
count = 3
[[flows]]
peer = "p1"
topic = "t"
rate_per_s = 100
[[subscriptions]]
name = "s"
peer = "p2"
patterns = ["t"]
"""
CRASH = """
[[events]]
at_s = 4
do = "fail"
between = ["p1", "p2"]
[[events]]
at_s = 5
do = "crash"
peer = "p3"
for_s = 0.5
"""


@cache
def reason_against(kind: BackendKind) -> str:
    return why_not(kind)


@pytest.fixture(params=[BackendKind.NAMESPACES, BackendKind.PROXIES])
def backend(request: pytest.FixtureRequest) -> str:
    if reason := reason_against(request.param):
        pytest.skip(f"{request.param}: {reason}")
    return str(request.param)


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CALL, "testbed", *arguments],
        capture_output=True,
        text=True,
        timeout=90,
        env=os.environ | {"COLUMNS": "120"},
    )


def descendants(pid: int) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            child = int(path.parent.name)
            yield child
            yield from descendants(child)


def test_doctor_says_what_works_and_why_the_rest_does_not() -> None:
    done = call("doctor", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["backends"]["proxies"] == {"works": True, "why_not": ""}
    assert set(found["backends"]) == set(BackendKind)
    for each in found["backends"].values():
        assert each["works"] or each["why_not"]


@pytest.mark.alone
def test_messages_take_the_configured_delay_and_find_a_way_around_a_dead_link(
    backend: str, tmp_path: Path
) -> None:
    scenario = tmp_path / "twenty.toml"
    scenario.write_text(TWENTY_MS + CRASH)
    done = call("run", str(scenario), "--backend", backend, "--json", "--variants", "adaptive")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    numbers = summary["variants"]["adaptive"]
    assert 380 <= numbers["published"] <= 410
    # 0.7 without a way around. The rest is what a busy machine takes to start the crashed process again.
    assert numbers["loss_where_path_existed"] < 0.4
    assert 20 <= numbers["latency_ms"]["p50"] < 45  # direct, then by way of p3
    assert [event["do"] for event in numbers["events"]] == ["fail", "crash"]
    assert summary["emulation"][0]["emulation"]["backend"] == backend


def test_the_summary_is_shown_as_that_of_the_simulator_is(tmp_path: Path) -> None:
    scenario = tmp_path / "twenty.toml"
    scenario.write_text(TWENTY_MS)
    done = call("run", str(scenario), "--seconds", "5", "--variants", "bp")
    assert done.returncode == 0, done.stderr
    for text in ("twenty: bp", "s.t", "p99 ms", "network: ", "others used"):
        assert text in done.stdout


def test_hosts_run_programs_of_their_own() -> None:
    done = call("run", str(COMMANDS), "--seconds", "7", "--json")
    assert done.returncode == 0, done.stderr
    said = [each["line"] for each in json.loads(done.stdout)["said"] if each["peer"] == "control"]
    assert said[:2] == [
        "asked s5, s7, s9: {'refused': 1, 'shed': 2}",
        "calm now: s1, s3, s5, s7; still busy: s9",
    ]
    assert said[-1] == "ended: 9, complete: True"


def test_a_program_that_fails_ends_the_run_and_tells_what_it_wrote(tmp_path: Path) -> None:
    scenario = tmp_path / "failing.toml"
    command = '["python", "-c", "raise SystemExit(\'no such key\')"]'
    scenario.write_text(f'[run]\nduration_s = 20\n[[peers]]\nname = "p"\nprogram = {command}\n')
    done = call("run", str(scenario), "--backend", "proxies")
    assert done.returncode == 1
    assert "the process of peer p ended with code 1; it wrote:\nno such key" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupt", "kill"])
def test_nothing_is_left_however_it_ends(number: signal.Signals, backend: str) -> None:
    process = subprocess.Popen(
        [*CALL, "testbed", "run", str(SMOKE), "--backend", backend, "--variants", "bp"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 30
    children: list[int] = []
    while len(children) < 6 and time.monotonic() < deadline:
        children = list(descendants(process.pid))
        time.sleep(0.05)
    assert len(children) >= 6, "five peers and a network"
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == (-9 if number == signal.SIGKILL else 130), stderr
    deadline = time.monotonic() + 15
    while (left := [pid for pid in children if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "absent.toml"], "scenario 'absent.toml': No such file"),
        (["run", str(SMOKE), "--backend", "tunnels"], "--backend tunnels: one of auto, namespaces"),
        (["run", str(SMOKE), "--variants", "xp"], "--variants xp: unknown variant 'xp'"),
        (["run", str(SMOKE), "--seconds", "1"], "run.warmup_s = 4.0: must be below"),
    ],
)
def test_what_cannot_work_ends_with_code_2_and_leaves_nothing(arguments: list[str], complaint: str) -> None:
    done = call(*arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
