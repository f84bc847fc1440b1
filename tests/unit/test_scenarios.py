"""Scenario files: what is read, what is refused and how, what happens when, and what is measured."""

from pathlib import Path
from typing import get_args

import msgspec
import pytest

from anabranch.overlay.errors import UsageError
from anabranch.overlay.qos import Role, Variant
from anabranch.overlay.records import (
    ControlRecord,
    DeliveryRecord,
    LinkRecord,
    LogRecord,
    ProbeRecord,
    RouteRecord,
)
from anabranch.tools.scenarios import schema
from anabranch.tools.scenarios.builtin import FIVE_PEERS, five_peers
from anabranch.tools.scenarios.disturbances import Disturbances
from anabranch.tools.scenarios.forms import FORMS
from anabranch.tools.scenarios.layout import Layout
from anabranch.tools.scenarios.measuring import PairCounts
from anabranch.tools.scenarios.reading import load_scenario, parse_scenario
from anabranch.tools.scenarios.recordfiles import RecordFiles
from anabranch.tools.scenarios.running import make_jobs, run_jobs, share_meshes
from anabranch.tools.scenarios.schema import Scenario
from anabranch.tools.scenarios.simulating import Job, RunResult, simulate
from anabranch.tools.scenarios.summary import summarize
from anabranch.tools.scenarios.timeline import Happening, timeline
from anabranch.transport.logwriter import LogWriter
from anabranch.transport.simulator import EPOCH_BASE_US

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "scenarios").glob("*.toml"))
TWO = """
[[peers]]
name = "a"
[[peers]]
name = "b"
"""
TRIANGLE = """
[run]
duration_s = 12
warmup_s = 2
[network]
delay_ms = 10
[[peers]]
name = "p"
count = 3
[[flows]]
peer = "p1"
topic = "t"
rate_per_s = 100
deadline_ms = 50
[[subscriptions]]
name = "s3"
peer = "p3"
patterns = ["t"]
"""


def parse(text: str) -> Scenario:
    return parse_scenario(text, "try.toml")


def run_one(text: str, variant: str = "bp", seed: int = 1, **options: object) -> RunResult:
    return simulate(Job(parse(text), variant, seed, **options))  # type: ignore[arg-type]


# What is read


def test_peers_that_run_programs_publish_and_subscribe_by_themselves(tmp_path: Path) -> None:
    (tmp_path / "radar.py").write_text("")
    file = tmp_path / "own.toml"
    peer = '[[peers]]\nname = "a"\nprogram = ["python", "radar.py", "{join}"]\n'
    file.write_text(peer)
    assert load_scenario(file).peers[0].program == ["python", str(tmp_path / "radar.py"), "{join}"]
    file.write_text(peer + '[[flows]]\npeer = "*"\ntopic = "t"\nrate_per_s = 1\n')
    with pytest.raises(UsageError, match=r"flows\[1\].peer: 'a' runs a program"):
        load_scenario(file)


def test_the_builtin_scenario_is_the_example_file() -> None:
    (example,) = [path for path in EXAMPLES if path.name == "five-peers.toml"]
    assert example.read_text() == FIVE_PEERS
    assert load_scenario(example) == five_peers()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_can_be_read_and_laid_out(path: Path) -> None:
    scenario = load_scenario(path)
    layout = Layout(scenario, scenario.run.seed)
    planned = timeline(scenario, layout, scenario.run.seed)
    assert bool(planned) == bool(scenario.events or scenario.random_faults)
    for variant in scenario.run.variants:
        assert layout.config(layout.names[0], variant)


def test_what_a_file_leaves_out_has_its_default() -> None:
    scenario = parse(TWO)
    assert scenario.name == "try"
    assert scenario.run == schema.Run()
    layout = Layout(scenario, 1)
    assert layout.mesh == "full"
    assert layout.links == [("b", "a")]
    assert layout.default.delay_s == 0.01


def test_every_key_has_a_form_in_words() -> None:
    tables = [Scenario, *(table for tables in schema.TABLES.values() for table in tables)]
    keys = {key for table in tables for key in table.__struct_fields__} | {"do"}
    assert keys == set(FORMS)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("peers = 3", r"peers = 3: expected tables \[\[peers\]\]"),
        ("", r"'peers' is missing: expected tables \[\[peers\]\]"),
        ("peers = []", r"peers = \[\]: expected tables"),
        (TWO + "nmae = 'x'", r"peers\[2\]: unknown key 'nmae': did you mean 'name'"),
        ("nmae = 'x'\n" + TWO, r"^try.toml: unknown key 'nmae': did you mean 'name'"),
        (
            TWO + "[run]\nduration_s = 'long'",
            r"run.duration_s = 'long': expected a number of seconds above 0",
        ),
        (TWO + "[run]\nwarmup_s = 90", r"run.warmup_s = 90.0: must be below run.duration_s = 60"),
        (TWO + "[run]\nvariants = ['xp']", r"run.variants: unknown variant 'xp': one of dp, bp"),
        (TWO + "[network]\nloss = 2", r"network.loss = 2: expected a share from 0 to 1"),
        (TWO + "[network]\ndelay_ms = nan", r"network.delay_ms = nan: expected a finite number"),
        (TWO + "[network]\ndelay_s = 1", r"network: unknown key 'delay_s': did you mean 'delay_ms'"),
        (TWO + "[config]\nprobe_intervall_s = 1", r"config: unknown key .*did you mean 'probe_interval_s'"),
        (TWO + "[config]\nprobe_interval_s = 'x'", r"config.probe_interval_s = 'x': expected a number"),
        (TWO + "[config]\nvariant = 'xp'", r"config.variant = 'xp': expected one of dp, bp"),
        (TWO + "[config]\ndown_after_s = 0.1", r"settings of peer 'a'.*down_after_s = 0.1: must be larger"),
        (TWO + "[config]\nrole = 'client'", r"config: 'role' stands in \[\[peers\]\]"),
        (TWO + "[variants.x]\npreset = 'mars'", r"variants.NAME.preset = '...': expected one of"),
        (TWO + "[variants.x]\nconfig = { links_max = 1.5 }", r"variants.x.config.links_max = 1.5"),
        (TWO + "[[peers]]\nname = 'a'", r"peer 'a' is described twice"),
        (TWO + "[[peers]]\nname = 'a b'", r"peer name 'a b': use 1 to 64 letters"),
        (TWO + "[[peers]]\nname = 'c'\njoin = ['z']", r"peers\[3\].join: no peer 'z': one of a, b, c"),
        (TWO + "[[peers]]\nname = 'c'\nrole = 'client'", r"peers\[3\].join is missing: a client attaches"),
        (
            TWO + "[[links]]\nbetween = ['a']",
            r"links\[1\].between = \['a'\]: expected the names of two peers",
        ),
        (TWO + "[[links]]\nbetween = ['a', 'z']", r"links\[1\].between: no peer 'z'"),
        (
            TWO + "[[links]]\nbetween = ['a', 'a']",
            r"links\[1\].between = \['a', 'a'\]: .* two different peers",
        ),
        (
            TWO + "[[links]]\nbetween = ['a', 'b']\n[[links]]\nbetween = ['b', 'a']",
            r"links\[2\].between = \['b', 'a'\]: described in links\[1\] already",
        ),
        (
            TWO + "[[flows]]\npeer = 'a'\ntopic = 't'",
            r"flows\[1\]: 'rate_per_s' is missing: expected a number",
        ),
        (TWO + "[[flows]]\npeer = 'z'\ntopic = 't'\nrate_per_s = 1", r"flows\[1\].peer: no peer 'z'"),
        (TWO + "[[flows]]\npeer = 'a'\ntopic = 't*'\nrate_per_s = 1", r"flows\[1\].topic: topic 't\*'"),
        (
            TWO + "[[flows]]\npeer = 'a'\ntopic = 't'\nrate_per_s = 1\nstart_s = 5\nstop_s = 4",
            r"flows\[1\].stop_s = 4.0: must be after start_s = 5.0",
        ),
        (
            TWO + "[[flows]]\npeer = 'a'\ntopic = 't'\nrate_per_s = 1\nsize_bytes = 20000000",
            r"flows\[1\].size_bytes = 20000000: payload_max_bytes = 16777216 at most",
        ),
        (TWO + "[[subscriptions]]\npeer = 'a'\npatterns = ['a//b']", r"subscriptions\[1\].patterns: pattern"),
        (
            TWO + "[[events]]\nat_s = 1\ndo = 'explode'",
            r"events\[1\].do = 'explode': expected one of \"degrade\"",
        ),
        (TWO + "[[events]]\nat_s = 1", r"events\[1\]: 'do' is missing: expected one of"),
        (TWO + "[[events]]\nat_s = 1\ndo = 'crash'\npeer = 'z'", r"events\[1\].peer: no peer 'z'"),
        (
            TWO + "[[events]]\nat_s = 1\ndo = 'crash'\npeer = 'a'\nbetween = ['a', 'b']",
            r"events\[1\]: unknown key 'between': one of do, at_s, peer, reset, for_s",
        ),
        (
            TWO + "[[events]]\nat_s = 1\ndo = 'degrade'\nbetween = ['a', 'b']",
            r"events\[1\] changes nothing: give one of delay_ms",
        ),
        (TWO + "[[events]]\nat_s = 99\ndo = 'heal'", r"events\[1\].at_s = 99.0: after the end of the run"),
        (
            TWO + "[[events]]\nat_s = 1\ndo = 'partition'\ngroups = [['a', 'b'], ['a']]",
            r"events\[1\].groups: peer 'a' stands there twice",
        ),
        (
            TWO + "[[peers]]\nname = 'c'\n[[links]]\nbetween = ['a', 'b']\n"
            "[[events]]\nat_s = 1\ndo = 'fail'\nbetween = ['a', 'c']",
            r"events\[1\].between = \['a', 'c'\]: there is no such link; describe it in \[\[links\]\]",
        ),
        (
            TWO + "[[random_faults]]\ndo = 'heal'\nevery_s = 1\nprobability = 1",
            r"random_faults\[1\].do = 'heal'",
        ),
        (
            TWO + "[[random_faults]]\ndo = 'fail'\nevery_s = 0\nprobability = 1",
            r"random_faults\[1\].every_s = 0: expected a number of seconds above 0",
        ),
        ("a = ", r"not valid TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_place_and_what_would_do(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        parse(text)
    assert str(caught.value).startswith("try.toml: ")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent.toml': No such file or directory; name a TOML file"):
        load_scenario(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe9'")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_scenario(tmp_path / "latin.toml")


# How it is laid out


def test_conditions_come_from_the_network_then_the_link_then_its_way_back() -> None:
    text = "[network]\ndelay_ms = 5\nloss = 0.1\n" + TWO + "[[peers]]\nname = 'c'\n"
    text += "[[links]]\nbetween = ['a', 'b']\ndelay_ms = 12\nback = { delay_ms = 14, rate_bytes_s = 1000 }"
    layout = Layout(parse(text), 1)
    there, back = layout.conditions["a", "b"], layout.conditions["b", "a"]
    assert (there.delay_s, there.loss, there.rate_bytes_s) == (0.012, 0.1, None)
    assert (back.delay_s, back.loss, back.rate_bytes_s) == (0.014, 0.1, 1000)
    assert layout.default.delay_s == 0.005
    assert layout.links == [("a", "b")]  # only what is listed


def test_settings_come_from_the_preset_then_the_file_then_the_variant_then_the_peer() -> None:
    text = """
    preset = "lan"
    [config]
    probe_interval_s = 1.0
    [variants.slow]
    preset = "harmony"
    config = { probe_interval_s = 2.0 }
    [variants.dp]
    config = { ewma_weight = 0.5 }
    [[peers]]
    name = "a"
    [[peers]]
    name = "b"
    config = { probe_interval_s = 4.0 }
    """
    layout = Layout(parse(text), 1)
    plain, slow = layout.config("a", "dp"), layout.config("a", "slow")
    assert (plain.suspect_after_s, plain.probe_interval_s, plain.variant) == (0.5, 1.0, Variant.DP)
    assert (plain.neighbours_target, plain.ewma_weight) == (0, 0.5)
    assert (slow.spread_interval_s, slow.probe_interval_s, slow.variant) == (10.0, 2.0, Variant.ADAPTIVE)
    assert layout.config("b", "slow").probe_interval_s == 4.0


def test_meshes_are_full_random_or_left_to_the_peers() -> None:
    many = "[network]\nmesh = '{}'\n[[peers]]\nname = 'p'\ncount = 12\n"
    phone = "[[peers]]\nname = 'phone'\nrole = 'client'\njoin = ['p1', 'p2']"
    full = Layout(parse(many.format("full") + phone), 1)
    assert len(full.links) == 12 * 11 // 2 + 2
    assert full.places[-1].dials == ("p1", "p2")
    assert full.places[-1].role is Role.CLIENT
    drawn = Layout(parse(many.format("random")), 1)
    assert len(drawn.links) == 1 + 2 * 10
    assert drawn.links == Layout(parse(many.format("random")), 1).links
    assert drawn.links != Layout(parse(many.format("random")), 2).links
    left = Layout(parse(many.format("join") + phone), 1)
    assert left.links == [("phone", "p1"), ("phone", "p2")]
    assert left.config("p1", "bp").neighbours_target == 4


def test_names_may_be_patterns_and_ways_have_directions() -> None:
    layout = Layout(parse("[[peers]]\nname = 'p'\ncount = 3\n[[peers]]\nname = 'q'"), 1)
    assert layout.peers("p*") == ["p1", "p2", "p3"]
    assert layout.peers("q") == ["q"]
    assert layout.peers("z*") == []
    assert layout.ways(("p1", "q"), "there") == (("p1", "q"),)
    assert layout.ways(("p1", "q"), "back") == (("q", "p1"),)
    assert set(layout.ways(("q", "p*"), "there")) == {("q", "p1"), ("q", "p2"), ("q", "p3")}
    assert len(layout.ways(("*", "*"), "both")) == 12


# What happens when


def test_events_and_faults_stand_in_order_of_time() -> None:
    text = (
        TRIANGLE
        + """
    [[events]]
    at_s = 8
    do = "crash"
    peer = "p2"
    for_s = 1
    [[events]]
    at_s = 3
    do = "degrade"
    between = ["p1", "p3"]
    direction = "there"
    delay_ms = 100
    [[random_faults]]
    do = "fail"
    every_s = 5
    probability = 1.0
    for_s = 2
    """
    )
    scenario = parse(text)
    told = [f"{each.at_s:g} {each}" for each in timeline(scenario, Layout(scenario, 1), 1)]
    fails = ["fail p2-p1 for 2 s", "fail p3-p1 for 2 s", "fail p3-p2 for 2 s"]
    assert told == [
        "3 degrade p1>p3 delay_ms 100",
        *(f"5 {each}" for each in fails),
        "8 crash p2 for 1 s",
        *(f"10 {each}" for each in fails),
    ]


def test_random_faults_depend_on_the_seed_alone_and_hit_with_their_probability() -> None:
    text = "[run]\nduration_s = 10000\n[[peers]]\nname = 'p'\ncount = 5\n"
    text += "[[random_faults]]\ndo = 'fail'\nevery_s = 10\nprobability = 0.12\nfor_s = 5\nrounds = 900"
    scenario = parse(text)
    drawn = timeline(scenario, Layout(scenario, 1), 1)
    assert drawn == timeline(scenario, Layout(scenario, 1), 1)
    assert drawn != timeline(scenario, Layout(scenario, 2), 2)
    assert 0.11 < len(drawn) / (900 * 10) < 0.13
    assert drawn[-1].at_s <= 900 * 10


def test_random_faults_of_peers_name_the_peer() -> None:
    text = (
        TRIANGLE
        + "[[random_faults]]\ndo = 'crash'\npeer = 'p[12]'\nevery_s = 5\nprobability = 1\nstart_s = 1"
    )
    scenario = parse(text)
    drawn = timeline(scenario, Layout(scenario, 1), 1)
    assert [(each.at_s, each.peers, each.until_s) for each in drawn[:2]] == [(1, ("p1",), 6), (1, ("p2",), 6)]
    assert [each.at_s for each in drawn] == [1, 1, 6, 6, 11, 11]


def test_a_happening_knows_the_paths_it_hits() -> None:
    fail = Happening(at_s=1, do="fail", ways=(("a", "b"),))
    assert fail.hits(("x", "a", "b"))
    assert not fail.hits(("b", "a"))
    crash = Happening(at_s=1, do="crash", peers=("r",))
    assert crash.hits(("a", "r", "b"))
    assert not crash.hits(("a", "b"))
    split = Happening(at_s=1, do="partition", groups=(("a", "b"),))
    assert split.hits(("a", "c"))
    assert not split.hits(("a", "b"))
    assert not split.hits(("c", "d"))


def test_disturbances_of_one_link_add_up_and_end_one_by_one() -> None:
    layout = Layout(parse(TWO), 1)
    ways = (("a", "b"),)
    slow = Happening(at_s=1, do="degrade", ways=ways, changes=schema.ConditionKeys(delay_ms=100))
    lossy = Happening(at_s=2, do="degrade", ways=ways, changes=schema.ConditionKeys(loss=0.5))
    fail = Happening(at_s=3, do="fail", ways=ways)
    now = Disturbances(layout)
    assert now.begin(1, slow)["a", "b"].delay_s == 0.1
    both = now.begin(2, lossy)["a", "b"]
    assert (both.delay_s, both.loss) == (0.1, 0.5)
    assert now.begin(3, fail)["a", "b"].blackhole
    assert now.end(3, fail)["a", "b"] == both
    left = now.end(1, slow)["a", "b"]
    assert (left.delay_s, left.loss) == (0.01, 0.5)
    lasting = Happening(at_s=4, do="set", ways=ways, changes=schema.ConditionKeys(delay_ms=30))
    now.begin(4, lasting)
    restored = now.begin(5, Happening(at_s=5, do="restore", ways=ways))["a", "b"]
    assert (restored.delay_s, restored.loss) == (0.03, 0.0)
    assert now.end(2, lossy) == {}  # ended by the restore already


# What is measured


def test_a_healthy_flow_loses_nothing_and_takes_the_delay_of_its_link() -> None:
    measured = run_one(TRIANGLE).measured
    (counts,) = measured.pairs.values()
    assert (counts.oracle_s, counts.taken_s, counts.direct_s) == pytest.approx((10.0, 10.0, 10.0))
    counts.oracle_s = counts.taken_s = counts.direct_s = 0.0
    assert counts == PairCounts(
        published=1000,
        delivered=1000,
        latencies={1000: 1000},
        possible=1000,
        timely=1000,
        compared=1000,
        direct=1000,
        data_bytes=measured.data_bytes,
    )


def test_a_failure_costs_messages_until_the_flow_delivers_again() -> None:
    text = TRIANGLE + "[[events]]\nat_s = 5\ndo = 'fail'\nbetween = ['p1', 'p3']\nfor_s = 4"
    direct, best = (run_one(text, variant).measured for variant in ("dp", "bp"))
    assert 400 <= 1000 - direct.pairs["s3.t"].delivered <= 550
    assert best.pairs["s3.t"].delivered == 1000, "what the link held took the other way"
    assert 20 < best.pairs["s3.t"].late <= 80
    assert best.pairs["s3.t"].switches == 2
    (hurt,) = best.happenings
    assert hurt.what == "fail p3-p1 for 4 s" or hurt.what == "fail p1-p3 for 4 s"
    assert 0.15 < hurt.again_s["s3.t"] < 0.8
    assert hurt.rerouted_s == [hurt.again_s["s3.t"]]
    assert 4.0 <= direct.happenings[0].again_s["s3.t"] < 5.5


def test_a_degraded_link_makes_messages_late_and_a_fault_elsewhere_hurts_nobody() -> None:
    text = (
        TRIANGLE
        + """
    [[events]]
    at_s = 5
    do = "degrade"
    between = ["p1", "p3"]
    delay_ms = 80
    for_s = 3
    [[events]]
    at_s = 9
    do = "crash"
    peer = "p2"
    """
    )
    measured = run_one(text, "dp").measured
    assert measured.pairs["s3.t"].late == pytest.approx(300, abs=3)
    assert measured.pairs["s3.t"].delivered == 1000
    slow, elsewhere = measured.happenings
    assert 3.0 <= slow.again_s["s3.t"] < 3.2
    assert elsewhere.again_s == {}


def test_an_end_that_is_itself_at_fault_does_not_count_as_rerouting() -> None:
    text = TRIANGLE + "[[events]]\nat_s = 5\ndo = 'crash'\npeer = 'p1'\nreset = true\nfor_s = 1"
    (hurt,) = run_one(text).measured.happenings
    assert hurt.rerouted_s == []


def test_subscriptions_begin_and_end_at_their_times() -> None:
    text = (
        TRIANGLE + "[[subscriptions]]\nname = 'short'\npeer = 'p2'\npatterns = ['*']\nstart_s = 4\nstop_s = 6"
    )
    counts = run_one(text).measured.pairs["short.t"]
    assert counts.published == 200
    assert 190 <= counts.delivered <= 200


def test_every_kind_of_event_is_carried_out() -> None:
    text = TRIANGLE + "".join(
        f"\n[[events]]\nat_s = {at}\n{what}"
        for at, what in enumerate(
            (
                "do = 'pause'\npeer = 'p2'",
                "do = 'resume'\npeer = 'p2'",
                "do = 'leave'\npeer = 'p2'",
                "do = 'restart'\npeer = 'p2'",
                "do = 'partition'\ngroups = [['p1'], ['p2', 'p3']]",
                "do = 'heal'",
                "do = 'set'\nbetween = ['p1', 'p3']\njitter_ms = 1",
                "do = 'fail'\nbetween = ['p2', '*']",
                "do = 'restore'\nbetween = ['p2', '*']",
                "do = 'crash'\npeer = 'p2'",
            ),
            start=2,
        )
    )
    done = {str(type(event).__struct_config__.tag) for event in parse(text).events} | {"degrade"}
    assert done == {str(kind.__struct_config__.tag) for kind in get_args(schema.Event)}
    result = run_one(text, check=True)
    assert result.measured.pairs["s3.t"].delivered > 700
    assert len(result.measured.happenings) == 10


def test_runs_repeat_and_their_sum_has_the_promised_shape() -> None:
    text = TRIANGLE + "[[random_faults]]\ndo = 'fail'\nevery_s = 3\nprobability = 0.5\nfor_s = 1"
    scenario = parse(text)
    jobs = make_jobs(scenario, variants=["dp", "bp"], seed=7, runs=2)
    shares: list[float] = []
    first, again = run_jobs(jobs, shares.append, processes=1), run_jobs(jobs, lambda share: None, processes=1)
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
    one, two = summarize(scenario, first, 1.0), summarize(scenario, again, 2.0)
    assert one.pop("performance") != two.pop("performance")
    assert one == two
    assert (one["seed"], one["runs"], list(one["variants"])) == (7, 2, ["dp", "bp"])
    best = one["variants"]["bp"]
    assert {"loss", "late_share", "data_bytes", "control_bytes_per_s", "switches"} <= best.keys()
    assert best["latency_ms"].keys() == {"p50", "p99", "p999", "max"}
    assert {"p50", "p99"} <= best["reroute_s"].keys()
    assert best["pairs"]["s3.t"]["published"] == 2000
    assert best["loss"] < one["variants"]["dp"]["loss"] < 1
    assert [trace["seed"] for trace in best["traces"]] == [7, 8]
    assert msgspec.json.encode(one)


def test_percentiles_are_those_of_the_messages() -> None:
    scenario = parse(TRIANGLE)
    result = run_one(TRIANGLE)
    counts = PairCounts(published=1100, delivered=1000, late=10, latencies={100: 500, 2000: 490, 9000: 10})
    measured = msgspec.structs.replace(result.measured, pairs={"x.t": counts})
    summary = summarize(scenario, [msgspec.structs.replace(result, measured=measured)], 1.0)
    pair = summary["variants"]["bp"]["pairs"]["x.t"]
    assert pair["latency_ms"] == {"p50": 1.0, "p99": 20.0, "p999": 90.0, "max": 90.0}
    assert (pair["loss"], pair["late_share"]) == (0.090909, 0.01)


def test_a_topic_that_nobody_delivers_has_no_latency() -> None:
    text = TRIANGLE + "[[events]]\nat_s = 0\ndo = 'partition'\ngroups = [['p1'], ['p2'], ['p3']]"
    scenario = parse(text)
    summary = summarize(scenario, [run_one(text)], 1.0)
    best = summary["variants"]["bp"]
    assert best["loss"] == 1.0
    assert set(best["latency_ms"].values()) == {None}


# Logs


def test_records_are_written_in_the_form_of_the_log_writer(tmp_path: Path) -> None:
    record = LinkRecord(ts=2_500_000, peer="a", epoch=7, neighbour="b", state="up", cause="hello")
    writer = LogWriter(tmp_path / "real", "a", wall_offset_us=EPOCH_BASE_US)
    writer.write(record)
    writer.close()
    files = RecordFiles(tmp_path / "sim", {"a": 1000.0})
    files.write(msgspec.structs.replace(record, ts=record.ts + 1_000_000_000))
    files.close()
    (real,), (simulated,) = (list((tmp_path / name).iterdir()) for name in ("real", "sim"))
    assert simulated.read_bytes() == real.read_bytes()
    assert simulated.name == f"a-{EPOCH_BASE_US}-00000.jsonl"


def test_a_run_writes_every_peers_records_alike_each_time(tmp_path: Path) -> None:
    kinds = ProbeRecord | LinkRecord | RouteRecord | DeliveryRecord | ControlRecord
    contents = []
    for name in ("one", "two"):
        run_one(TRIANGLE, log_dir=str(tmp_path / name))
        contents.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert contents[0] == contents[1]
    assert len(contents[0]) == 3
    decoder = msgspec.json.Decoder(kinds)
    records: list[LogRecord] = [
        decoder.decode(line) for lines in contents[0].values() for line in lines.splitlines()
    ]
    assert {type(record) for record in records} == set(get_args(kinds))
    delivered = [record for record in records if isinstance(record, DeliveryRecord)]
    assert sum(record.count for record in delivered) == 1000
    assert all(0 <= record.ts - EPOCH_BASE_US <= 14_000_000 for record in records)


def test_a_log_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="file/logs': Not a directory; name one that can be written"):
        RecordFiles(tmp_path / "file" / "logs", {})


def test_variants_on_one_mesh_measure_what_each_measures_alone() -> None:
    text = """
    [run]
    duration_s = 12
    warmup_s = 3
    [[peers]]
    name = "p"
    count = 4
    [network]
    mesh = "full"
    delay_ms = 10
    [[links]]
    between = ["p1", "p2"]
    delay_ms = 80
    [[subscriptions]]
    peer = "p2"
    patterns = ["a"]
    [[flows]]
    peer = "p1"
    topic = "a"
    rate_per_s = 10
    """
    variants = ["dp", "bp", "bp+qos+mp"]
    alone = run_jobs(make_jobs(parse(text), variants=variants, seed=3, runs=2), print, processes=1)
    shared = share_meshes(make_jobs(parse(text), variants=variants, seed=3, runs=2))
    assert [(job.seed, job.together) for job in shared] == [(3, tuple(variants)), (4, tuple(variants))]
    together = run_jobs(shared, print, processes=1)
    by_run = {(each.variant, each.seed): each for each in together}
    assert len(by_run) == len(alone) == 6
    for one in alone:
        other = by_run[one.variant, one.seed]
        counts, same = one.measured.pairs["p2.a"], other.measured.pairs["p2.a"]
        assert counts.delivered == same.delivered == 90
        assert same.taken_s == pytest.approx(counts.taken_s, rel=1e-6)
        assert same.oracle_s == pytest.approx(counts.oracle_s)
        assert other.measured.bundles == one.measured.bundles
        assert same.data_bytes == pytest.approx(counts.data_bytes, rel=0.1)
        assert other.measured.data_bytes == pytest.approx(one.measured.data_bytes, rel=0.1)
        assert other.measured.control_bytes == pytest.approx(one.measured.control_bytes, rel=0.2)
    assert sum(each.events for each in together) < 0.6 * sum(each.events for each in alone)
