"""What the demonstration concludes from what its peers tell, and how it shows it."""

import io
import json
import time
from pathlib import Path

import pytest
from rich.console import Console

from anabranch.overlay.errors import UsageError
from anabranch.tools.demo import command, scenario, screen
from anabranch.tools.demo.board import Board, missing
from anabranch.tools.demo.measuring import FlowMeter
from anabranch.tools.demo.mesh import Outcome
from anabranch.tools.demo.messages import LinkSeen, LinkView, Matched, PathSeen, Ready, Status
from anabranch.tools.demo.scenario import FLOWS, LINKS, PEERS, Step, Trouble, find_link
from anabranch.tools.demo.summary import print_summary, summarise
from anabranch.tools.testbed.histogram import Histogram

SLOW = find_link("p2", "p5")
DYING = find_link("p1", "p3")
RADAR_TO_P5 = next(flow for flow in FLOWS if (flow.topic, flow.destination) == ("air/radar", "p5"))
START = 1000.0


def settled_board() -> Board:
    """All links up, all flows on their direct paths for a second."""
    board = Board()
    for peer in PEERS:
        board.take(peer, Ready(address=f"tcp://127.0.0.1:{1000 + PEERS.index(peer)}"))
        for neighbour in PEERS:
            if neighbour != peer:
                board.take(peer, LinkSeen(at=START - 1, neighbour=neighbour, state="up"))
        board.take(peer, status(peer))
    board.started_at = START
    for flow in FLOWS:
        board.take(flow.source, Matched(topic=flow.topic))
        seen = PathSeen(at=START + 0.1, topic=flow.topic, path=(flow.source, flow.destination))
        board.take(flow.destination, seen)
    return board


def status(peer: str, *, hushed: bool = False, late_ms: float = 0.0, received: int = 100) -> Status:
    links = [
        LinkView(
            peer=other,
            state="up",
            delay_ms=find_link(peer, other).delay_s * 1e3,
            jitter_ms=0.1,
            loss=0.0,
        )
        for other in PEERS
        if other != peer
    ]
    meters = []
    for flow in FLOWS:
        if flow.destination == peer:
            meter = FlowMeter(flow.topic, scenario.DEADLINE_S)
            for number in range(received):
                now = START + number / 100
                latency = 0.020 + late_ms / 1e3
                meter.add(
                    number, (flow.source, peer), sent_at=now - latency, now=now, age_s=latency, late=False
                )
            meters.append(meter.view(START + received / 100))
    published = {flow.topic: received for flow in FLOWS if flow.source == peer}
    return Status(
        at=START,
        links=links,
        flows=meters,
        published=published,
        counters={"dropped.no_route": 0},
        hushed=hushed,
        final=hushed,
    )


def test_a_flow_that_leaves_a_degraded_link_gives_the_reaction_time() -> None:
    board = settled_board()
    board.happened(Step(8.0, Trouble.DEGRADED, SLOW), START + 8.0)
    (happening,) = board.happenings
    assert happening.affected == [RADAR_TO_P5]
    assert happening.reaction_s is None
    board.take("p1", PathSeen(at=START + 8.2, topic="air/radar", path=("p2", "p3", "p1")))
    assert happening.reaction_s is None, "a flow that did not use the link is no answer"
    board.take("p5", PathSeen(at=START + 8.7, topic="air/radar", path=("p2", "p3", "p5")))
    board.take("p5", PathSeen(at=START + 9.9, topic="air/radar", path=("p2", "p4", "p5")))
    assert happening.reaction_s == pytest.approx(0.7)
    assert happening.moved[0].path == ("p2", "p3", "p5")
    assert board.links[SLOW].set_delay_s == scenario.DEGRADED_S


def test_a_dead_link_is_noticed_by_the_end_that_finds_it_bad_first() -> None:
    board = settled_board()
    board.happened(Step(16.0, Trouble.DEAD, DYING), START + 16.0)
    board.take("p3", LinkSeen(at=START + 16.6, neighbour="p1", state="suspect"))
    board.take("p1", LinkSeen(at=START + 16.8, neighbour="p3", state="suspect"))
    board.take("p3", LinkSeen(at=START + 17.0, neighbour="p1", state="down"))
    (happening,) = board.happenings
    assert happening.noticed_s == pytest.approx(0.6)
    assert board.links[DYING].state == "down"


def test_a_restored_link_is_answered_by_the_return_of_the_flow_that_left() -> None:
    board = settled_board()
    board.happened(Step(16.0, Trouble.DEAD, DYING), START + 16.0)
    board.take("p3", LinkSeen(at=START + 17.0, neighbour="p1", state="down"))
    board.take("p1", LinkSeen(at=START + 17.1, neighbour="p3", state="down"))
    board.take("p1", PathSeen(at=START + 17.2, topic="air/weather", path=("p3", "p2", "p1")))
    board.happened(Step(24.0, Trouble.RESTORED, DYING), START + 24.0)
    board.take("p3", LinkSeen(at=START + 24.4, neighbour="p1", state="up"))
    restored = board.happenings[-1]
    assert restored.noticed_s is None, "one end alone does not make it up"
    board.take("p1", LinkSeen(at=START + 24.5, neighbour="p3", state="up"))
    board.take("p1", PathSeen(at=START + 25.0, topic="air/weather", path=("p3", "p1")))
    assert restored.noticed_s == pytest.approx(0.5)
    assert restored.reaction_s == pytest.approx(1.0)


def test_a_restored_link_that_no_flow_left_affects_nobody() -> None:
    board = settled_board()
    board.happened(Step(24.0, Trouble.RESTORED, DYING), START + 24.0)
    assert board.happenings[0].affected == []


def test_a_run_is_good_only_if_every_flow_was_delivering_at_the_end() -> None:
    board = settled_board()
    for peer in PEERS:
        board.take(peer, status(peer, hushed=True, received=0 if peer == "p4" else 100))
    board.verdict()
    assert board.problems == ["air/weather to p4 was not delivering at the end"]


def test_a_peer_that_died_is_told_with_its_words() -> None:
    board = settled_board()
    board.lost_peer("p2", "the process p2 ended with code 1; it wrote:\nTraceback ...")
    assert board.problems == ["the process p2 ended with code 1; it wrote:\nTraceback ..."]
    assert board.lines[-1].text == "the process p2 ended with code 1; it wrote:"
    assert board.links_up() == len(LINKS) - 4
    board.happened(Step(8.0, Trouble.DEGRADED, SLOW), START + 8.0)
    assert board.happenings[0].affected == []


def test_a_mesh_that_does_not_come_up_says_what_it_waits_for() -> None:
    board = Board()
    assert missing(board) == "not listening yet: p1, p2, p3, p4, p5"
    board = settled_board()
    board.take("p4", LinkSeen(at=START, neighbour="p5", state="down"))
    assert "p4" in missing(board)
    assert missing(board).startswith("links not up yet")
    board.take("p4", LinkSeen(at=START, neighbour="p5", state="up"))
    board.matched.discard("air/alerts")
    assert missing(board) == "subscribers not known yet: air/alerts"


def test_a_meter_counts_gaps_lateness_and_path_changes() -> None:
    meter = FlowMeter("t", 0.050)
    direct, detour = ("a", "b"), ("a", "c", "b")
    assert meter.add(0, direct, sent_at=0.99, now=1.00, age_s=0.01, late=False)
    assert not meter.add(1, direct, sent_at=1.00, now=1.01, age_s=0.01, late=False)
    assert meter.add(5, detour, sent_at=1.05, now=1.15, age_s=0.09, late=True)
    assert not meter.add(4, detour, sent_at=1.04, now=1.16, age_s=0.09, late=True)
    view = meter.view(1.2)
    assert (view.received, view.missed, view.disordered) == (4, 3, 1)
    assert (view.late, view.told_late, view.reroutes) == (2, 2, 1)
    assert view.longest_gap_ms == pytest.approx(140.0)
    assert view.path == detour
    assert (view.rate, view.recent_p50_ms, view.recent_p99_ms) == (4.0, 10.0, 120.0)
    assert view.age_p50_ms == pytest.approx(10.0, rel=0.02)
    later = meter.view(9.0)
    assert (later.rate, later.recent_p50_ms, later.received) == (0.0, None, 4)


def test_a_histogram_gives_quantiles_to_two_per_cent() -> None:
    histogram = Histogram()
    assert histogram.quantile(0.5) is None
    for number in range(1, 1001):
        histogram.add(number / 1000)
    assert histogram.quantile(0.5) == pytest.approx(0.5, rel=0.02)
    assert histogram.quantile(0.99) == pytest.approx(0.99, rel=0.02)
    histogram.add(0.0)
    histogram.add(1e9)
    assert histogram.quantile(0.0) == pytest.approx(1e-6, rel=0.02)
    assert histogram.count == 1002


def test_what_happens_is_spread_over_the_run() -> None:
    steps = scenario.timeline(6.0)
    assert [(round(step.at_s, 2), step.trouble.value) for step in steps] == [
        (1.6, "degraded"),
        (3.2, "dead"),
        (4.8, "restored"),
        (4.8, "restored"),
    ]
    for wrong in (0.0, 4.9, 3601.0, float("nan")):
        with pytest.raises(UsageError, match="--seconds"):
            scenario.timeline(wrong)


def test_the_links_and_flows_of_the_scenario_fit_together() -> None:
    assert len(LINKS) == len(PEERS) * (len(PEERS) - 1) // 2
    assert all(0.008 <= link.delay_s <= 0.040 for link in LINKS)
    assert SLOW.delay_s == 0.012
    assert len({flow.topic for flow in FLOWS}) == 3
    assert len(FLOWS) == 6
    carried = {frozenset((flow.source, flow.destination)) for flow in FLOWS}
    assert {frozenset((SLOW.first, SLOW.second)), frozenset((DYING.first, DYING.second))} <= carried


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 40), (200, 60)])
@pytest.mark.parametrize("stage", ["starting", "running"])
def test_the_picture_fits_the_terminal(width: int, height: int, stage: str) -> None:
    board = Board() if stage == "starting" else settled_board()
    if stage == "running":
        board.happened(Step(8.0, Trouble.DEGRADED, SLOW), START + 8.0)
        board.happened(Step(16.0, Trouble.DEAD, DYING), START + 16.0)
        board.take("p3", LinkSeen(at=START + 16.6, neighbour="p1", state="suspect"))
        board.take("p5", PathSeen(at=START + 8.7, topic="air/radar", path=("p2", "p3", "p4", "p5")))
        for peer in PEERS:
            board.take(peer, status(peer, late_ms=120.0))
        for number in range(50):
            board.say(f"line {number} " + "of a story that is too long for the terminal " * 4)
        board.phase = "running"
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    rows = console.render_lines(screen.render(board, 30.0, START + 17.0, width, height), pad=False)
    texts = ["".join(segment.text for segment in row).rstrip() for row in rows]
    assert len(texts) <= height - 1
    assert max(map(len, texts)) <= width
    picture = "\n".join(texts)
    for link in LINKS:
        assert link.name in picture
    for flow in FLOWS:
        assert flow.topic in picture
    if stage == "running":
        assert "p2→p3→p4→p5" in picture
        assert "suspect" in picture
        assert "140.0" in picture
        assert "line 49" in picture


def test_the_summary_tells_flows_events_logs_and_problems() -> None:
    board = settled_board()
    board.happened(Step(8.0, Trouble.DEGRADED, SLOW), START + 8.0)
    board.take("p5", PathSeen(at=START + 8.7, topic="air/radar", path=("p2", "p3", "p5")))
    board.happened(Step(16.0, Trouble.DEAD, DYING), START + 16.0)
    for peer in PEERS:
        board.take(peer, status(peer, hushed=True))
    board.verdict()
    board.fail("something is wrong")
    summary = summarise(board, Outcome({"p1": 17}, wrote=["logs/p1.stderr"]), 30.0, Path("logs"))
    assert json.loads(json.dumps(summary)) == summary
    assert summary["ok"] is False
    moved = next(event for event in summary["events"] if event["kind"] == "degraded")
    assert (moved["link"], moved["reaction_s"]) == ("p2-p5", 0.7)
    flow = summary["flows"][0]
    assert (flow["sent"], flow["delivered"], flow["lost"], flow["delivering"]) == (100, 100, 0, True)
    console = Console(file=io.StringIO(), width=80, color_system=None)
    print_summary(console, summary)
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    assert "air/radar to p5 took p2→p3→p5 after 0.70 s" in printed
    assert "air/weather to p1 did not move" in printed
    assert "problem: something is wrong" in printed
    assert "logs/p1.stderr" in printed
    assert "every flow was delivering" not in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_a_log_directory_that_cannot_be_written_names_itself(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--log-dir .*file/logs: cannot be written"):
        command.demo(seconds=5.0, log_dir=tmp_path / "file" / "logs")


def test_the_clock_of_a_board_starts_with_the_flows() -> None:
    board = Board()
    assert board.elapsed_s == 0.0
    board.started_at = time.monotonic() - 3.0
    assert 3.0 <= board.elapsed_s < 4.0
