"""The applications of examples/applications run, and show what they are there to show."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

APPLICATIONS = Path(__file__).parents[2] / "examples" / "applications"


def shown(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(APPLICATIONS / name), *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(autouse=True)
def as_users_run_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """They say themselves that their mesh is open."""
    monkeypatch.delenv("ANABRANCH_OPEN")


def test_plots_leave_the_link_that_got_slow() -> None:
    said = shown("air_surveillance.py", "--seconds", "6")
    before, after = said.split("gets slow: 120 ms")
    assert "tower: plots come by radar > tower" in before
    assert "defence: plots come by radar > relay > defence" in before
    assert "tower: plots come by radar > relay > tower" in after
    for agency in ("tower", "defence"):
        (plots, late) = re.findall(rf"^{agency}: (\d+) plots, (\d+) of them late", after, re.MULTILINE)[0]
        assert int(plots) == 300
        assert int(late) < 60


def test_a_higher_price_lowers_the_merged_demand() -> None:
    said = shown("demand_response.py")
    assert "  north: 3 households take 6.0 kW" in said
    totals = [float(kw) for kw in re.findall(r"^price \d\.\d\d: (\d+\.\d) kW in all", said, re.MULTILINE)]
    assert totals[0] == 14.0
    assert totals == sorted(totals, reverse=True)
    assert totals[2] < totals[1] < totals[0]


def test_sites_are_selected_by_what_they_are_at_that_moment() -> None:
    said = shown("command_and_control.py").splitlines()
    assert said[:2] == [
        "asked s5, s7, s9: {'refused': 1, 'shed': 2}",
        "calm now: s1, s3, s5, s7; still busy: s9",
    ]
    assert sorted(said[2:4]) == ["s5 has load 0.0", "s9 has load 0.9"]
    assert said[4:] == ["ended: 9, complete: True"]
