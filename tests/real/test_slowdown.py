"""What those who must not get in, or go too far, cost members who talk: long, and alone on the machine.

`SLOWDOWN_SECONDS=3 .venv/bin/pytest -s tests/real/test_slowdown.py`
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from support_identities import Identities

from anabranch.tools.bench.children import Children
from anabranch.tools.bench.scenarios import Options

SECONDS = float(os.environ.get("SLOWDOWN_SECONDS", "0"))
ROUNDS = 5
NUISANCES = Path(__file__).with_name("nuisances.py")
ALONE = "nobody"


def bothering(directory: Path) -> tuple[Path, dict[str, list[str]]]:
    """Where the identities of members are, and for each who bothers them: program and identity."""
    ours, foreign = Identities(directory / "ours"), Identities(directory / "foreign")
    for name in ("echo", "ping", "rogue", "revoked"):
        ours.issue(name, 3)
    ours.issue("tdn", 3, is_tdn=True)
    expired = ours.issue("expired", 0.0003)
    ours.revoke("revoked", tell="echo")
    time.sleep(2)  # until that certificate has ended, by the clock of the host
    return ours["echo"].parent, {
        ALONE: [],
        "a stranger": ["knock"],
        "a revoked peer": ["knock", str(ours["revoked"])],
        "an expired peer": ["knock", str(expired)],
        "a foreign certificate": ["knock", str(foreign["rogue"])],
        "a grant holder beyond its grant": ["beyond_its_grant"],
        "a forging relay": ["forging_relay"],
        "a lying node": ["lying_node"],
        "a hostile query": ["hostile_query"],
    }


def round_trip_us(options: Options, program: list[str]) -> float:
    """The median between two members, while somebody bothers them twenty times a second, or nobody."""
    with Children() as children:
        echo = children.start(options.job("anabranch", "echo", name="echo"))
        address = str(echo.expect("ready", 20.0)["address"])
        nuisance = None
        if program:
            kind, *more = program
            words = [sys.executable, str(NUISANCES), kind, address, options.identities, *more]
            nuisance = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=None)
            assert nuisance.stdout is not None
            assert nuisance.stdout.readline() == b"ready\n"
        try:
            ping = children.start(options.job("anabranch", "ping", name="ping", address=address))
            result = ping.expect("result", options.limit_s)
            assert nuisance is None or nuisance.poll() is None
            children.finish()
        finally:
            if nuisance is not None:
                nuisance.terminate()
                nuisance.communicate()
    return float(result["p50_us"])


@pytest.mark.skipif(not SECONDS, reason="takes minutes, alone on the machine: SLOWDOWN_SECONDS=3")
@pytest.mark.timeout(900)
def test_nobody_slows_members_down_by_more_than_a_tenth(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "foreign").mkdir()
    places, programs = bothering(tmp_path)
    options = Options(seconds=SECONDS, identities=str(places))
    taken: dict[str, list[float]] = {who: [] for who in programs}
    for _ in range(ROUNDS):
        for who, program in programs.items():
            taken[who].append(round_trip_us(options, program))
    alone = statistics.median(taken[ALONE])
    slower = {who: statistics.median(values) / alone for who, values in taken.items()}
    for who, values in taken.items():
        print(f"{who}: {statistics.median(values):.1f} us, {slower[who]:.2f} x; {values}")
    assert max(slower.values()) <= 1.1, slower
