"""Recorded networks: what is read, what is refused and how, how they are played back and recorded."""

import gzip
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from anabranch.overlay.errors import UsageError
from anabranch.tools.scenarios.layout import Layout
from anabranch.tools.scenarios.schema import Crash, Network, Peer, Recorded, Run, Scenario
from anabranch.tools.traces.composing import Wishes, can_share, compose
from anabranch.tools.traces.playback import Playback
from anabranch.tools.traces.reading import Reading, load_trace, save_trace
from anabranch.tools.traces.recording import record
from anabranch.tools.traces.trace import Trace


def npz(path: Path, **arrays: object) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def text(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def test_matrices_of_round_trips_become_one_way_delays_and_zero_is_missing(tmp_path: Path) -> None:
    values = np.array([[[0, 10], [30, 0]], [[0, 20], [0, 0]]], dtype=np.uint16)
    trace = load_trace(npz(tmp_path / "t.npz", rtt_centisec=values))
    assert (trace.slices, trace.nodes) == (2, ["n1", "n2"])
    assert trace.delays_s[0, 0, 1] == pytest.approx(0.05)
    assert trace.delays_s[0, 1, 0] == pytest.approx(0.15)
    assert np.isnan(trace.delays_s[1, 1, 0])
    floor = load_trace(tmp_path / "t.npz", Reading(zero=0.004))
    assert floor.delays_s[1, 1, 0] == pytest.approx(0.004)


def test_a_ping_series_is_averaged_per_slice_and_what_is_missing_is_loss(tmp_path: Path) -> None:
    rows = "time_s,source,target,rtt_ms\n0,a,b,10\n1,a,b,30\n1,b,a,8\n11,a,b,\n12,a,b,40\n"
    trace = load_trace(text(tmp_path / "t.csv", rows), Reading(slice_s=10))
    delays, losses = trace.series("a", "b")
    assert delays == pytest.approx([0.01, 0.02])
    assert losses == pytest.approx([0.0, 0.5])
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(rows.encode()))
    assert load_trace(packed, Reading(slice_s=10)).slices == 2


def test_pairs_without_time_are_one_slice_and_matrices_in_csv_are_one_each(tmp_path: Path) -> None:
    pairs = text(tmp_path / "pairs.csv", "source,destination,min,avg,max\n0,0,1,1,1\n0,1,1,20,3\n")
    trace = load_trace(pairs)
    assert (trace.slices, trace.measured_nodes()) == (1, ["0", "1"])
    assert trace.series("0", "1")[0] == pytest.approx([0.01])
    square = text(tmp_path / "m.csv", "x,y\n0,4\n6,0\n\n0,8\n2,0\n")
    trace = load_trace(square, Reading(unit="ms"))
    assert (trace.slices, trace.nodes) == (2, ["x", "y"])
    assert trace.series("y", "x")[0] == pytest.approx([0.003, 0.001])


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("empty.csv", "", "is empty; expected an .npz"),
        ("short.csv", "source,target,rtt_ms\na,b\n", "line 2 has 2 columns; expected 3"),
        ("word.csv", "source,target,rtt_ms\na,b,soon\n", "line 2: rtt_ms = 'soon': expected a number"),
        ("negative.csv", "source,target,rtt_ms\na,b,-4\n", "line 2: rtt_ms = -4: expected 0 or more"),
        ("infinite.csv", "source,target,rtt_ms\na,b,inf\n", "line 2: rtt_ms = 'inf': expected a finite"),
        ("no_value.csv", "source,target,colour\na,b,red\n", "none is named like rtt_ms"),
        ("alone.csv", "source,target,rtt_ms\na,a,4\n", "no measurement between two different nodes"),
        ("ragged.csv", "0,1\n1,0\n3,2\n", "3 lines of 2 columns are no square matrices"),
        ("unit.csv", "0,1\n1,0\n", "say --unit s, cs, ms or us"),
        ("huge.csv", "source,target,rtt_s\na,b,90000\n", "a delay of 45,000 s: is the unit right?"),
        ("broken.npz", "this is no archive", "not an .npz of plain arrays"),
    ],
)
def test_a_malformed_file_is_refused_with_its_name_the_place_and_what_would_do(
    name: str, content: str, complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=name) as caught:
        load_trace(text(tmp_path / name, content))
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"rtt_ms": np.zeros((2, 3))}, "holds rtt_ms (2, 3); expected one array of slices x nodes x nodes"),
        ({"rtt": np.ones((1, 2, 2))}, "'rtt' does not say its unit"),
        ({"rtt_ms": np.full((1, 2, 2), -1.0)}, "'rtt_ms'[0, 0, 0] = -1: expected 0 or more"),
        ({"rtt_ms": np.full((1, 2, 2), np.inf)}, "holds infinite values"),
        ({"rtt_ms": np.array([[["a", "b"], ["c", "d"]]])}, "expected numbers"),
        ({"rtt_ms": np.ones((1, 2, 2)), "loss": np.ones(3)}, "array 'loss' has the shape (3,)"),
        ({"rtt_ms": np.ones((1, 2, 2)), "nodes": np.array(["a", "a"])}, "node 'a' stands twice"),
    ],
)
def test_a_malformed_archive_is_refused(arrays: dict[str, object], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_trace(npz(tmp_path / "t.npz", **arrays))
    assert complaint in str(caught.value)


def test_objects_in_an_archive_are_never_unpickled(tmp_path: Path) -> None:
    path = npz(tmp_path / "t.npz", rtt_ms=np.array([[object()]], dtype=object))
    with pytest.raises(UsageError, match="plain arrays"):
        load_trace(path)


def scenario_over(path: Path, peers: int, **keys: object) -> Scenario:
    table = msgspec.convert({"file": str(path), **keys}, Recorded)
    return Scenario(
        run=Run(duration_s=40, warmup_s=5),
        network=Network(mesh="full"),
        trace=table,
        peers=[Peer(name="p", count=peers)],
    )


@pytest.mark.parametrize(("missing", "then"), [("hold", 0.02), ("down", None)])
def test_playback_tells_only_changes_and_what_happens_to_missing_values(
    missing: str, then: float | None, tmp_path: Path
) -> None:
    delays = np.full((4, 2, 2), 0.01)
    delays[:, 0, 1] = [0.02, 0.02, np.nan, 0.05]
    path = npz(tmp_path / "t.npz", delay_s=delays, slice_s=10.0)
    scenario = scenario_over(path, 2, missing=missing, nodes=["n1", "n2"])
    layout = Layout(scenario, 1)
    steps = list(Playback(scenario, layout.names, layout.possible_ways, 1).steps())
    assert steps[0][0] == 0
    assert steps[0][1]["p1", "p2"] == (pytest.approx(0.02), 0.0)
    later = {at: changes["p1", "p2"][0] for at, changes in steps[1:]}
    expected = {35.0: pytest.approx(0.05)} | ({25.0: None} if then is None else {})
    assert later == expected


def test_nodes_are_drawn_by_the_seed_and_more_peers_than_nodes_share_them(tmp_path: Path) -> None:
    path = npz(tmp_path / "t.npz", delay_ms=np.ones((1, 9, 9)))
    scenario = scenario_over(path, 4)
    layout = Layout(scenario, 1)
    drawn = [
        tuple(Playback(scenario, layout.names, layout.possible_ways, seed).nodes.values())
        for seed in (1, 1, 2, 3)
    ]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3
    crowd = scenario_over(path, 20)
    layout = Layout(crowd, 1)
    nodes = Playback(crowd, layout.names, layout.possible_ways, 1).nodes
    assert sorted(set(nodes.values())) == sorted(f"n{number}" for number in range(1, 10))


def test_a_trace_that_was_written_is_read_again(tmp_path: Path) -> None:
    delays = np.random.default_rng(1).random((3, 4, 4)).astype(np.float32)
    losses = np.zeros_like(delays)
    save_trace(Trace(list("abcd"), delays, losses=losses, slice_s=7.0), tmp_path / "t.npz")
    again = load_trace(tmp_path / "t.npz")
    assert again.nodes == list("abcd")
    assert again.slice_s == 7.0
    assert again.delays_s == pytest.approx(delays)


def test_logs_become_a_trace_and_a_torn_line_is_no_probe(tmp_path: Path) -> None:
    def probe(second: float, peer: str, neighbour: str, rtt_us: int | None) -> str:
        at = {
            "kind": "probe",
            "ts": int(second * 1e6),
            "peer": peer,
            "neighbour": neighbour,
            "rtt_us": rtt_us,
        }
        return json.dumps(at) + "\n"

    (tmp_path / "deep").mkdir()
    text(tmp_path / "a-1-00000.jsonl", probe(100, "a", "b", 20_000) + probe(101, "a", "b", 40_000))
    text(
        tmp_path / "deep" / "b-1-00000.jsonl",
        probe(106, "b", "a", None) + probe(107, "b", "a", 8_000) + '{"kind": "probe", "ts"',
    )
    made = record(tmp_path, 5.0)
    assert (made.probes, made.torn, made.trace.slices) == (4, 1, 2)
    assert made.trace.series("a", "b")[0][0] == pytest.approx(0.015)
    delays, losses = made.trace.series("b", "a")
    assert delays[1] == pytest.approx(0.004)
    assert losses[1] == pytest.approx(0.5)
    with pytest.raises(UsageError, match="no probe records"):
        record(_empty(tmp_path), 5.0)


def _empty(tmp_path: Path) -> Path:
    (tmp_path / "none").mkdir()
    return tmp_path / "none"


def test_a_replay_is_a_scenario_in_which_nobody_hears_itself(tmp_path: Path) -> None:
    path = npz(tmp_path / "t.npz", delay_ms=np.ones((3, 9, 9)))
    wishes = Wishes(trace=Recorded(file=str(path), slice_s=10), peers=4, outage_every_s=5, warmup_s=2)
    scenario = compose(wishes, "t")
    assert scenario.run.duration_s == 32
    assert len(scenario.random_faults) == 1
    for subscription in scenario.subscriptions:
        assert f"from/{subscription.peer}" not in subscription.patterns
        assert len(subscription.patterns) == 3
    with pytest.raises(UsageError, match="--peers 1: from 2"):
        compose(msgspec.structs.replace(wishes, peers=1), "t")


def test_some_of_those_that_only_receive_can_be_made_to_crash_half_way(tmp_path: Path) -> None:
    path = tmp_path / "n.npz"
    np.savez(path, rtt_ms=np.full((2, 20, 20), 40.0))
    wishes = Wishes(
        trace=Recorded(file=str(path), slice_s=10), peers=20, publishers=3, crash_share=0.1, warmup_s=2
    )
    crashes = compose(wishes, "t").events
    assert [type(crash) for crash in crashes] == [Crash, Crash]
    assert {crash.at_s for crash in crashes} == {12.0}
    assert not {crash.peer for crash in crashes} & {"p1", "p2", "p3"}  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="18 peers, but only 17 do not publish"):
        compose(msgspec.structs.replace(wishes, crash_share=0.9), "t")
    with pytest.raises(UsageError, match="from 0 to 1"):
        compose(msgspec.structs.replace(wishes, crash_share=2), "t")


def test_variants_share_a_mesh_only_where_nothing_gets_lost(tmp_path: Path) -> None:
    path = npz(tmp_path / "t.npz", delay_ms=np.ones((3, 9, 9)))
    wishes = Wishes(trace=Recorded(file=str(path)), peers=4)
    assert can_share(wishes, ["dp", "bp"])
    assert not can_share(wishes, ["bp"])
    assert not can_share(wishes, ["bp", "mine"])
    for harm in ({"loss": 0.01}, {"outage_every_s": 10.0}, {"crash_share": 0.1}):
        assert not can_share(msgspec.structs.replace(wishes, **harm), ["dp", "bp"])
    down = Recorded(file=str(path), missing="down")
    assert not can_share(msgspec.structs.replace(wishes, trace=down), ["dp", "bp"])


def test_slices_whose_length_nobody_says_are_played_as_long_as_wished(tmp_path: Path) -> None:
    silent = Recorded(file=str(npz(tmp_path / "t.npz", delay_ms=np.ones((3, 9, 9)))))
    for wishes, slice_s in (
        (Wishes(trace=silent, peers=4), 3.75),
        (Wishes(trace=silent, peers=4, unsaid_slice_s=15), 15),
        (Wishes(trace=msgspec.structs.replace(silent, slice_s=2), peers=4), 2),
    ):
        scenario = compose(wishes, "t")
        assert scenario.trace is not None
        assert scenario.trace.slice_s == slice_s
        assert scenario.run.duration_s == wishes.warmup_s + 3 * slice_s
