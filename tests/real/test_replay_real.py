"""`anabranch replay --real`: a recorded network in real time, with real peers over emulated links."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CALL = [sys.executable, "-c", "from anabranch.tools.cli import main; main()"]


def test_a_recorded_network_is_replayed_with_real_peers_between_its_two_bounds(tmp_path: Path) -> None:
    rows = ["source,target,time_s,rtt_ms"]
    for at in (0, 2):
        rows += [f"a,b,{at},300", f"b,a,{at},300", f"a,c,{at},40", f"c,a,{at},40"]
        rows += [f"b,c,{at},40", f"c,b,{at},40"]
    trace, picture = tmp_path / "detour.csv", tmp_path / "detour.svg"
    trace.write_text("\n".join(rows) + "\n")
    options = ("--real", "--peers", "3", "--rate", "20", "--slice-s", "2", "--variants", "dp,bp")
    command = [*CALL, "replay", str(trace), *options, "--plot", str(picture), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    compared = json.loads(done.stdout)["compared"]
    for numbers in compared.values():
        assert numbers["oracle_ms"] == pytest.approx(80 / 3, rel=0.05)  # by way of c between a and b
        assert numbers["direct_ms"] == pytest.approx(190 / 3, rel=0.05)
        assert numbers["loss_where_path_existed"] == 0
    assert compared["dp"]["mean_over_oracle"] > 2 > compared["bp"]["mean_over_oracle"] >= 1
    assert compared["bp"]["traffic_over_one_path"] == 1
    assert 0 < compared["dp"]["traffic_over_one_path"] < 1.5  # bundles: a busy machine puts more into one
    assert picture.read_text().startswith("<?xml")
