"""The bench of matching: its options and what it prints."""

import json

import pytest
from typer.testing import CliRunner

from anabranch.overlay.errors import UsageError
from anabranch.tools.bench import cli

MATCHING = ["matching", "--changes", "0", "--json"]


def test_the_command_prints_a_row_for_each_number_of_filters_and_sites() -> None:
    done = CliRunner().invoke(cli.bench_app, [*MATCHING, "--filters", "50,400", "--sites", "60"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["results"]
    assert [row.get("filters") for row in rows] == [50, 400, None]
    assert [row.get("sites") for row in rows] == [None, None, 60]
    for row in rows:
        assert 0 < row["p50_us"] <= row["p99_us"]
        assert row["matches"] > 0
    assert rows[1]["each_us"] > 0


def test_filters_may_be_about_many_names() -> None:
    options = [*MATCHING, "--filters", "3000", "--names", "500", "--sites", "0"]
    done = CliRunner().invoke(cli.bench_app, options)
    (row,) = json.loads(done.stdout)["results"]
    assert row["names"] == 500
    assert row["p50_us"] < row["each_us"] / 5, "only those are asked whose attributes are there"
    done = CliRunner().invoke(cli.bench_app, ["matching", "--names", "2"])
    assert isinstance(done.exception, UsageError)


@pytest.mark.parametrize("text", ["", "0", "many", "10,", "2000000"])
def test_a_wrong_number_names_itself_and_the_fix(text: str) -> None:
    done = CliRunner().invoke(cli.bench_app, ["matching", "--filters", text])
    assert isinstance(done.exception, UsageError)
    assert "--filters" in str(done.exception)
    assert "1000,10000" in str(done.exception)
