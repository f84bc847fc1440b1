"""`anabranch replay` as people call it: recordings, bounds, what comes of our own logs, complaints."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

CALL = [sys.executable, "-c", "from anabranch.tools.cli import main; main()"]
DATA = Path(os.environ.get("RECORDINGS", Path(__file__).parents[2] / ".." / "shared" / "data"))


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COLUMNS": "140"}
    return subprocess.run([*CALL, *arguments], capture_output=True, text=True, timeout=100, env=environment)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Six nodes; the direct links of one are slow every other slice, but for one."""
    rtt = np.full((4, 6, 6), 40.0)
    rtt[1::2, 0, :] = rtt[1::2, :, 0] = 400.0
    rtt[:, 0, 3] = rtt[:, 3, 0] = 40.0
    path = tmp_path / "six.npz"
    np.savez(path, rtt_ms=rtt, slice_s=np.float64(6))
    return path


def test_variants_stand_between_the_two_bounds(recording: Path, tmp_path: Path) -> None:
    picture = tmp_path / "compared.svg"
    done = call(
        *("replay", str(recording), "--peers", "6", "--variants", "dp,bp", "--rate", "4", "--json"),
        *("--plot", str(picture)),
    )
    assert done.returncode == 0, done.stderr
    compared = json.loads(done.stdout)["compared"]
    direct, best = compared["dp"], compared["bp"]
    assert direct["mean_ms"] == pytest.approx(direct["direct_ms"], rel=0.02)
    assert best["oracle_ms"] <= best["mean_ms"] < 0.8 * direct["mean_ms"]
    assert best["loss_where_path_existed"] == 0
    assert best["traffic_over_one_path"] == 1
    assert picture.read_text().startswith("<?xml")


def test_a_mesh_can_be_recorded_and_replayed(tmp_path: Path, recording: Path) -> None:
    logs, again = tmp_path / "logs", tmp_path / "again.npz"
    ran = call("replay", str(recording), "--variants", "bp", "--peers", "6", "--log-dir", str(logs), "--json")
    assert ran.returncode == 0, ran.stderr
    made = call("replay", "record", str(logs), "--output", str(again), "--slice-s", "6", "--json")
    assert made.returncode == 0, made.stderr
    facts = json.loads(made.stdout)
    assert (facts["nodes"], facts["unreadable_lines"]) == (6, 0)
    shown = call("replay", str(again), "--variants", "bp", "--peers", "4", "--slices", "0:2")
    assert shown.returncode == 0, shown.stderr
    for text in ("oracle", "direct link", "again.npz: 1 x 4 peers"):
        assert text in shown.stdout


@pytest.mark.skipif(not DATA.is_dir(), reason="RECORDINGS names no directory of recordings")
def test_the_formats_of_published_recordings_are_read() -> None:
    cities = call(
        *("replay", str(DATA / "wondernetwork_pings.csv.gz"), "--peers", "4", "--variants", "bp", "--json"),
        *("--slice-s", "5"),
    )
    assert cities.returncode == 0, cities.stderr
    devices = call(
        *("replay", str(DATA / "seattle_rtt_first_half.npz"), "--peers", "4", "--variants", "bp", "--json"),
        *("--slices", "0:2"),
    )
    assert devices.returncode == 0, devices.stderr
    assert json.loads(devices.stdout)["compared"]["bp"]["mean_over_oracle"] >= 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["absent.npz"], "trace 'absent.npz': No such file or directory"),
        (["six.npz", "--peers", "1"], "--peers 1: from 2"),
        (["six.npz", "--slices", "9:12"], "slices 9 to 12: the trace has slices 0 to 3"),
        (["six.npz", "--slices", "4:2"], "--slices '4:2': first and last"),
        (["six.npz", "--variants", "xp"], "--variants xp: unknown variant 'xp'"),
        (["six.npz", "--zero", "none"], "--zero 'none': missing, or a number"),
        (["six.npz", "--unit", "weeks"], "replay: Invalid enum value 'weeks'"),
        (["six.npz", "--set", "probe_interval_s=soon"], "probe_interval_s"),
        (["record", "absent"], "log directory 'absent': there is no such directory"),
        (["six.npz", "--plot", "picture.doc"], "its name must end with .svg"),
    ],
)
def test_what_cannot_work_ends_with_code_2(
    arguments: list[str], complaint: str, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recording.parent)
    done = call("replay", *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
