"""Pictures of a comparison: which there are, that they repeat, what is said where they cannot be made."""

import sys
from pathlib import Path

import pytest

from anabranch.overlay.errors import UsageError
from anabranch.tools.scenarios.plotting import check_plot_place, plot
from anabranch.tools.scenarios.reading import parse_scenario
from anabranch.tools.scenarios.running import make_jobs, run_jobs

TEXT = """
name = "small"
[run]
duration_s = 8
[[peers]]
name = "p"
count = 3
[[flows]]
peer = "p1"
topic = "t"
rate_per_s = 20
deadline_ms = 50
[[subscriptions]]
peer = "p3"
patterns = ["t"]
[[events]]
at_s = 5
do = "fail"
between = ["p1", "p3"]
[reference]
source = "somebody"
pair = "p3.t"
late_ms = 40
loss_by_variant = { dp = [0.1, 0.2] }
late_by_variant = { dp = [0.3, 0.3] }
control_by_variant = { dp = [7800, 7800] }
data_by_variant = { bp = [2, 3] }
"""


def test_every_figure_is_made_with_the_reference_beside_it_and_repeats_to_the_byte(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    scenario = parse_scenario(TEXT, "small.toml")
    results = run_jobs(
        make_jobs(scenario, variants=["dp", "bp"], seed=1, runs=1), lambda _: None, processes=1
    )
    places = [tmp_path / name for name in ("one", "other")]
    for place in places:
        check_plot_place(place)
        made = plot(scenario, results, place)
        assert [path.name for path in made] == [
            "loss.svg",
            "latency.svg",
            "cdf.svg",
            "time.svg",
            "traffic.svg",
        ]
    for path in places[0].iterdir():
        assert path.read_bytes() == (places[1] / path.name).read_bytes()
        assert path.stat().st_size < 100_000
    text = {path.stem: path.read_text() for path in places[0].iterdir()}
    assert "paper, dp:" in text["loss"]
    assert "10.0% to 20.0%" in text["loss"]
    assert "paper, dp: 30% above" in text["cdf"]
    assert ">7.8<" in text["traffic"]
    assert ">paper<" in text["traffic"]
    assert all("somebody" in each for each in text.values())
    assert all("preset default" in each for each in text.values())


def test_without_matplotlib_the_fix_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"pip install 'anabranch\[plot\]'"):
        check_plot_place(tmp_path)


def test_a_file_is_no_place_for_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "out.svg").touch()
    with pytest.raises(UsageError, match=r"out\.svg.*directory"):
        check_plot_place(tmp_path / "out.svg")
