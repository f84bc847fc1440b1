"""The demonstration as its users call it, in short runs."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

LAUNCH = [sys.executable, "-c", "from anabranch.tools.cli import main; main()", "demo", "--json"]
END_S = 10.0

linux = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found in /proc")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The summary of one whole run of six seconds."""
    directory = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [*LAUNCH, "--seconds", "6", "--log-dir", "logs"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    summary: dict[str, Any] = json.loads(done.stdout)
    summary["directory"] = directory
    summary["progress"] = done.stderr
    return summary


def _event(summary: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(event for event in summary["events"] if event["kind"] == kind)
    return found


def test_all_flows_deliver_to_the_end(played: dict[str, Any]) -> None:
    assert played["ok"]
    assert played["problems"] == []
    assert len(played["flows"]) == 6
    for flow in played["flows"]:
        assert flow["delivering"]
        assert flow["sent"] >= 550
        assert flow["delivered"] + flow["lost"] == flow["sent"]
        assert flow["disordered"] == 0
        assert flow["path"][0] == flow["from"]
        assert flow["path"][-1] == flow["to"]
    untouched = [flow for flow in played["flows"] if not flow["reroutes"]]
    assert len(untouched) >= 3
    for flow in untouched:
        assert flow["lost"] == 0
        set_ms = next(
            link["set_ms"]
            for link in played["links"]
            if link["link"] == "-".join(sorted((flow["from"], flow["to"])))
        )
        assert set_ms <= flow["p50_ms"] < set_ms + 10
        assert abs(flow["age_p50_ms"] - flow["p50_ms"]) < 10


def test_the_flow_of_the_degraded_link_takes_a_detour(played: dict[str, Any]) -> None:
    event = _event(played, "degraded")
    assert event["link"] == "p2-p5"
    assert event["affected"] == ["air/radar to p5"]
    (move,) = event["moved"]
    assert move["path"][0] == "p2"
    assert move["path"][-1] == "p5"
    assert len(move["path"]) > 2
    assert 0 < event["reaction_s"] < 1.6


def test_the_dead_link_is_noticed_and_left(played: dict[str, Any]) -> None:
    event = _event(played, "dead")
    assert event["link"] == "p1-p3"
    assert event["affected"] == ["air/weather to p1"]
    assert 0.3 < event["noticed_s"] < 1.6
    assert 0.1 < event["reaction_s"] < 1.6  # copies take another way before the link is given up
    lost = {f"{flow['topic']} to {flow['to']}": flow["lost"] for flow in played["flows"]}
    assert lost["air/weather to p1"] <= 3, "what the link held took another way"


def test_logs_are_where_it_says(played: dict[str, Any]) -> None:
    logs = played["directory"] / played["demo"]["log_dir"]
    assert json.loads((logs / "summary.json").read_text())["ok"]
    for peer in ("p1", "p2", "p3", "p4", "p5"):
        (records,) = logs.glob(f"{peer}-*.jsonl")
        kinds = {json.loads(line)["kind"] for line in records.read_text().splitlines()}
        assert {"probe", "link"} <= kinds
        assert (logs / f"{peer}.stderr").read_text() == ""
    assert played["wrote"] == []


def test_progress_is_told_as_it_happens(played: dict[str, Any]) -> None:
    lines = played["progress"].splitlines()
    assert "starting 5 peers and 10 links" in lines[0]
    assert any("10 of 10 links up" in line for line in lines)
    assert any("link p2-p5 degraded: 12 → 100 ms one way" in line for line in lines)


def test_nothing_is_left_running(played: dict[str, Any]) -> None:
    assert set(played["processes"]) == {"proxies", "p1", "p2", "p3", "p4", "p5"}
    assert [name for name, pid in played["processes"].items() if _is_running(pid)] == []


@linux
def test_nothing_is_left_when_it_is_killed(tmp_path: Path) -> None:
    with _started(tmp_path, 20) as demo:
        children = _children(demo.pid)
        assert len(children) == 6
        demo.kill()
        demo.wait()
        _await_end(children)


@linux
def test_ctrl_c_ends_everything_in_order(tmp_path: Path) -> None:
    with _started(tmp_path, 20) as demo:
        children = _children(demo.pid)
        demo.send_signal(signal.SIGINT)
        _, told = demo.communicate(timeout=END_S)
        assert demo.returncode == 130
        assert "stopped; logs are in" in told
        assert "Traceback" not in told
        assert [pid for pid in children if _is_running(pid)] == []
        assert [path.read_text() for path in tmp_path.glob("*.stderr")] == [""] * 6


@linux
def test_a_peer_that_dies_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    with _started(tmp_path, 5) as demo:
        peer = _children(demo.pid)[-1]
        os.kill(peer, signal.SIGKILL)
        printed, _ = demo.communicate(timeout=30)
        assert demo.returncode == 1
        summary = json.loads(printed)
        (name,) = (name for name, pid in summary["processes"].items() if pid == peer)
        assert summary["problems"][0].startswith(f"the process {name} ended with code -9")
        for flow in summary["flows"]:
            assert flow["delivering"] == (name not in (flow["from"], flow["to"])), flow


@contextlib.contextmanager
def _started(log_dir: Path, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """A run whose flows have begun."""
    demo = subprocess.Popen(
        [*LAUNCH, "--seconds", str(seconds), "--log-dir", str(log_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert demo.stdout is not None
    assert demo.stderr is not None
    try:
        while "publishing" not in (line := demo.stderr.readline()):
            assert line, f"ended with {demo.wait()}"
        yield demo
    finally:
        demo.kill()
        demo.wait()
        demo.stdout.close()
        demo.stderr.close()


def _children(pid: int) -> list[int]:
    """In the order they were started."""
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _await_end(pids: list[int]) -> None:
    deadline = time.monotonic() + END_S
    while running := [pid for pid in pids if _is_running(pid)]:
        assert time.monotonic() < deadline, f"still running: {running}"
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")
