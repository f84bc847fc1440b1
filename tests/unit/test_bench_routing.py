"""The bench of routing: its options, its mesh, and what it prints."""

import json
from random import Random

import pytest
from typer.testing import CliRunner

from anabranch.overlay.errors import UsageError
from anabranch.tools.bench import cli
from anabranch.tools.bench.jobs import BenchError
from anabranch.tools.bench.routing import CHANGES, LEAST_SAMPLES, Mesh, parse_links, parse_peers, routing


def test_sizes_of_meshes_are_parsed_in_order_and_once() -> None:
    assert parse_peers("1000, 200,1000", 8) == [1000, 200]


@pytest.mark.parametrize("text", ["", "200,", "0", "-5", "8", "2k", "200;1000", "5001"])
def test_a_wrong_number_of_peers_names_itself_and_the_fix(text: str) -> None:
    with pytest.raises(UsageError, match=r"--peers .*and up to 5000, separated by commas") as caught:
        parse_peers(text, 8)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("links", [-2, 0, 1, 7, 66])
def test_a_wrong_number_of_links_names_the_option(links: int) -> None:
    with pytest.raises(UsageError, match=r"--links .*even number from 2 to 64"):
        parse_links(links)


def test_every_change_reaches_the_route_and_the_mesh_ends_as_it_began() -> None:
    mesh = Mesh(30, 4, Random(3))
    links = {peer: set(entries) for peer, entries in mesh._announced.items()}
    assert all(2 <= len(neighbours) <= 4 for neighbours in links.values())
    moved = 0
    for _ in range(20):
        for change in CHANGES:
            before = mesh._routes.route(mesh.destinations)
            version = mesh._topology.version
            assert mesh.timed(change) > 0
            after = mesh._routes.route(mesh.destinations)
            moved += after.generation != before.generation
            assert change == "delay" or mesh._topology.version == version + 2 * (change in ("down", "up"))
            assert after.reached == len(mesh.destinations) == 20
    assert moved > 20, "a link of the route that is gone makes another route"
    assert {peer: set(entries) for peer, entries in mesh._announced.items()} == links


def test_a_quiet_neighbour_gives_copies_to_what_goes_over_it() -> None:
    mesh = Mesh(30, 4, Random(3))
    searches = mesh._routes.searches
    mesh._routes.take_changes()
    mesh.timed("quiet")
    causes = [(change.cause, len(change.copies)) for change in mesh._routes.take_changes()]
    assert mesh._routes.searches == searches + 2
    assert causes.count(("trouble", 1)) == causes.count(("healthy", 0)) > 0


def test_a_mesh_that_falls_apart_is_an_error_and_no_figure() -> None:
    mesh = Mesh(30, 2, Random(1))
    for neighbour in list(mesh._announced[mesh._me]):
        del mesh._announced[mesh._me][neighbour]
    with pytest.raises(BenchError, match="no route to peer-"):
        mesh._apply(mesh._me)


def test_there_is_a_row_for_each_change() -> None:
    rows = routing(12, 4, 0.0)
    assert [row["change"] for row in rows] == list(CHANGES)
    for row in rows:
        assert (row["peers"], row["links"], row["destinations"]) == (12, 4, 11)
        assert row["samples"] == LEAST_SAMPLES
        assert 0 < row["p50_ms"] <= row["p99_ms"]


def test_the_command_prints_one_object_and_tells_its_progress_on_stderr() -> None:
    done = CliRunner().invoke(
        cli.bench_app, ["routing", "--peers", "12,20", "--links", "4", "--seconds", "0.05", "--json"]
    )
    assert done.exit_code == 0, done.output
    assert "20 peers, 4 links each" in done.stderr
    printed = json.loads(done.stdout)
    assert (printed["bench"], printed["ratios"], printed["skipped"]) == ("routing", [], [])
    assert [(row["peers"], row["change"]) for row in printed["results"]] == [
        (peers, change) for peers in (12, 20) for change in CHANGES
    ]


@pytest.mark.parametrize(
    "arguments", [["--peers", "many"], ["--links", "3"], ["--peers", "8"], ["--seconds", "0"]]
)
def test_wrong_options_are_usage_errors(arguments: list[str]) -> None:
    done = CliRunner().invoke(cli.bench_app, ["routing", *arguments])
    assert isinstance(done.exception, UsageError)
