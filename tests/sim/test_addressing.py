"""Content filters and selections of sites, in virtual time."""

import os
from functools import partial

import pytest
from changing_sites import ChangingSites

from anabranch.overlay.attributes import check_attributes, plain
from anabranch.overlay.config import Config
from anabranch.overlay.errors import UsageError
from anabranch.overlay.expressions import parse
from anabranch.overlay.reductions import Specified
from anabranch.testing import Mesh

SEEDS = int(os.environ.get("ADDRESSING_SEEDS", "5"))
SITES = 30
FIXED = Config(neighbours_target=0)


def star() -> Mesh:
    """`hub` in the middle, so that each message to a leaf crosses one link that is its own."""
    mesh = Mesh("hub", seed=3, config=FIXED)
    for name in ("n1", "n2", "s1"):
        mesh.add_peer(name, joins=["hub"])
    return mesh


def bundles(mesh: Mesh) -> int:
    return mesh.simulator.bundles_sent()


def test_a_filtered_subscription_gets_what_passes_and_the_links_carry_nothing_else() -> None:
    mesh = star()
    high = mesh.subscribe("n1", "air/*", where="altitude > 10000")
    low = mesh.subscribe("n2", "air/*", where="altitude <= 10000 and not military")
    whole = mesh.subscribe("s1", "air/radar")
    mesh.settle()
    for altitude in (12_000, 9_000, 15_000):
        mesh.publish("hub", "air/plot", altitude, attributes={"altitude": altitude})
    mesh.run_for(0.5)
    high.assert_payloads(12_000, 15_000)
    low.assert_payloads(9_000)
    assert bundles(mesh) == 3
    mesh.publish("hub", "air/radar", "plain")
    mesh.publish("hub", "air/radar", "own", attributes={"altitude": 3, "military": True})
    mesh.run_for(0.5)
    whole.assert_payloads("plain", "own")
    assert bundles(mesh) == 5, "nobody else wanted those"
    assert mesh.counters().get("lost", 0) == 0


def test_order_is_kept_between_messages_for_different_receivers_and_plain_ones() -> None:
    mesh = star()
    everything = mesh.subscribe("n1", "t")
    some = mesh.subscribe("n2", "t", where="kind = 'b'")
    mesh.settle()
    expected = []
    for number in range(40):
        attributes = {"kind": "ab"[number % 2]} if number % 3 else None
        mesh.publish("hub", "t", number, attributes=attributes)
        expected.append(number)
    mesh.run_for(0.5)
    everything.assert_payloads(*expected)
    some.assert_payloads(*(number for number in expected if number % 3 and number % 2))
    counters = mesh.counters()
    assert counters.get("lost", 0) == 0, "what was for others is no loss"
    assert counters.get("dropped.not_selected", 0) == 0


def test_all_and_only_the_matching_sites_get_it_with_a_topic_and_without() -> None:
    mesh = star()
    inboxes = {name: mesh.subscribe(name, "@site") for name in ("hub", "n1", "n2", "s1")}
    topics = {name: mesh.subscribe(name, "grid/shed") for name in ("n1", "s1")}
    for name, load in (("n1", 0.9), ("n2", 0.2), ("s1", 0.95)):
        mesh.set_attributes(name, {"region": "north" if name[0] == "n" else "south", "load": load})
    mesh.settle()
    mesh.run_for(0.2)
    mesh.publish("hub", "@site", 1, to="region = 'north'")
    mesh.publish("hub", "grid/shed", 2, to="load > 0.8 and not (region = 'south')")
    mesh.publish("hub", "@site", 3, to="not exists(load)")
    mesh.publish("n1", "@site", 4, to="load * 2 > 1.5 or load < 0.3")
    mesh.run_for(0.5)
    assert {name: sorted(inbox.payloads) for name, inbox in inboxes.items()} == {
        "hub": [3],
        "n1": [1, 4],
        "n2": [1, 4],
        "s1": [4],
    }
    topics["n1"].assert_payloads(2)
    topics["s1"].assert_payloads()


def test_a_site_that_changed_meanwhile_does_not_deliver() -> None:
    mesh = star()
    inbox = mesh.subscribe("n1", "@site")
    mesh.set_attributes("n1", {"on": True})
    mesh.settle()
    mesh.run_for(0.2)
    mesh.publish("hub", "@site", "for those that are on", to="on")
    mesh.set_attributes("n1", {"on": False})
    mesh.run_for(0.5)
    inbox.assert_payloads()
    assert mesh.counters("n1")["dropped.not_selected"] == 1
    mesh.publish("hub", "@site", "off", to="not on")
    mesh.run_for(0.5)
    inbox.assert_payloads("off")


def test_a_change_is_in_effect_everywhere_after_one_flooding_time() -> None:
    """Six peers in a row, 10 ms apart: the news needs 50 ms to the other end, and not more."""
    mesh = Mesh("p0", config=FIXED)
    for number in range(1, 6):
        mesh.add_peer(f"p{number}", joins=[f"p{number - 1}"])
    inbox = mesh.subscribe("p0", "@site")
    mesh.set_attributes("p0", {"n": 0})
    mesh.settle()
    mesh.run_for(1.0)
    for change in range(1, 4):
        mesh.set_attributes("p0", {"n": change})
        mesh.run_for(0.045)
        before = bundles(mesh)
        mesh.publish("p5", "@site", "too early", to=f"n = {change}")
        mesh.publish("p4", "@site", change, to=f"n = {change}")
        mesh.publish("p4", "@site", "too late", to=f"n = {change - 1}")
        mesh.run_for(0.006)
        mesh.publish("p5", "@site", -change, to=f"n = {change}")
        mesh.run_for(0.1)
        assert bundles(mesh) - before == 4 + 5, "what matches nowhere as far as is known is not sent"
    inbox.assert_payloads(1, -1, 2, -2, 3, -3)


def test_filters_that_others_cover_or_that_make_one_are_not_flooded() -> None:
    mesh = star()
    sim = mesh.simulator
    mesh.settle()
    wide = [sim.subscribe("n1", "t", where=f"x between {10 * n} and {10 * n + 15}") for n in range(40)]
    mesh.run_for(0.2)
    announced = sim.peer("hub").node.interests.patterns_of("n1")
    assert announced == {("t", "x >= 0 and x <= 405")}, "forty filters are told as one"
    frames = sim.peer("n1").frames_sent
    narrow = mesh.subscribe("n1", "t", where="x = 7 and y > 3")
    assert sim.peer("n1").frames_sent == frames, "it is covered: nobody need hear of it"
    for each in wide:
        sim.unsubscribe(each)
    mesh.run_for(0.2)
    before = bundles(mesh)
    for x, y in ((7, 4), (7, 3), (8, 4)):
        mesh.publish("hub", "t", [x, y], attributes={"x": x, "y": y})
    mesh.run_for(0.2)
    narrow.assert_payloads([7, 4])
    assert bundles(mesh) - before == 1, "what covered it is gone"


def test_a_site_that_changes_a_thousand_times_a_second_is_told_of_at_a_pace() -> None:
    mesh = star()
    sim = mesh.simulator
    inbox = mesh.subscribe("n1", "@site")
    mesh.settle()
    mesh.set_attributes("n1", {"n": -1})
    mesh.run_for(0.05)
    mesh.publish("hub", "@site", "first", to="n = -1")
    mesh.run_for(0.2)
    inbox.assert_payloads("first")  # the first change waits for nothing
    frames, begin = sim.peer("hub").frames_sent, sim.now
    for number in range(1000):
        sim.at(begin + number / 1000, partial(sim.set_attributes, "n1", {"n": number}))
    sim.run_for(1.0)
    told = sim.peer("hub").frames_sent - frames
    assert told < 120, "20 times told to two others, and what links need by themselves"
    sim.run_for(FIXED.attributes_interval_s + 0.02)
    mesh.publish("s1", "@site", "last", to="n = 999")
    mesh.run_for(0.2)
    inbox.assert_payloads("first", "last")
    frames = sim.peer("n1").frames_sent
    mesh.set_attributes("n1", {"n": 999})
    assert sim.peer("n1").frames_sent == frames, "what is the same is not told again"


def test_light_clients_select_and_are_selected() -> None:
    mesh = star()
    mesh.add_peer("c", joins=["n1"], client=True)
    mesh.add_peer("d", joins=["s1"], client=True)
    inbox = mesh.subscribe("d", "**", where="level >= 3")
    mesh.set_attributes("d", {"tags": ["x", "y"]})
    mesh.settle()
    mesh.run_for(0.2)
    mesh.publish("c", "a", "low", attributes={"level": 1})
    mesh.publish("c", "a", "high", attributes={"level": 3})
    mesh.publish("c", "a", "both", attributes={"level": 4}, to="tags superset {'x'}")
    mesh.publish("c", "a", "other site", attributes={"level": 4}, to="tags superset {'z'}")
    mesh.run_for(0.5)
    inbox.assert_payloads("high", "both")


def test_declared_attributes_make_mistakes_errors_where_they_are_made() -> None:
    config = FIXED.replace(site_attributes={"load": "number"}, message_attributes={"level": "number"})
    mesh = Mesh("a", "b", config=config)
    with pytest.raises(UsageError, match="did you mean 'load'"):
        mesh.set_attributes("a", {"laod": 1})
    with pytest.raises(UsageError, match="declared as number"):
        mesh.publish("a", "t", 1, attributes={"level": "high"})
    with pytest.raises(UsageError, match="column 8: a text is compared with a number"):
        mesh.publish("a", "t", 1, to="load > 'x'")
    with pytest.raises(UsageError, match="column 1: attribute 'x' is not declared"):
        mesh.subscribe("a", "t", where="x = 1")


def test_the_papers_reduction_on_filters_reaches_the_sites_that_a_selection_reaches() -> None:
    mesh = star()
    sites = {"n1": {"load": 0.9, "zone": "a"}, "n2": {"load": 0.4, "zone": "b"}, "s1": {"zone": "a"}}
    forms = {name: mesh.subscribe(name, "forms") for name in sites}
    for name, row in sites.items():
        mesh.set_attributes(name, row)
    mesh.settle()
    text = "load > 0.5 and zone = 'x' or not (load between 0 and 1)"
    mesh.publish("hub", "forms", ["shed", text])
    mesh.run_for(0.2)
    by_filter, by_site = {}, {}
    for name, row in sites.items():
        told, form_text = forms[name].payloads[0]
        own = Specified(told, parse(form_text)).filter(check_attributes(row))
        by_filter[name] = mesh.subscribe(name, "by/filter", where=own.text)
        by_site[name] = mesh.subscribe(name, "by/site")
    mesh.settle()
    mesh.run_for(0.2)
    form = Specified("shed", parse(text))
    for number, (low, zone, bounds) in enumerate(
        ((0.8, "a", (0, 1)), (0.3, "b", (0, 0.5)), (2, "b", (0, 9)))
    ):
        to = f"load > {low} and zone = '{zone}' or not (load between {bounds[0]} and {bounds[1]})"
        before = bundles(mesh)
        mesh.publish("hub", "by/filter", number, attributes=plain(form.message(parse(to))))
        mesh.run_for(0.2)
        as_filters = bundles(mesh) - before
        mesh.publish("hub", "by/site", number, to=to)
        mesh.run_for(0.2)
        assert bundles(mesh) - before == 2 * as_filters > 0, "neither went where it was not wanted"
    for name in sites:
        assert by_filter[name].payloads == by_site[name].payloads
    assert [len(by_site[name].payloads) for name in sites] == [2, 1, 3]


@pytest.mark.parametrize("merge", ["", "histogram"])
def test_a_request_asks_the_matching_sites_and_each_checks_again(merge: str) -> None:
    mesh = star()
    sim = mesh.simulator
    for name, load in (("n1", 0.9), ("n2", 0.95), ("s1", 0.2)):
        sim.subscribe(name, "@site")
        mesh.set_attributes(name, {"load": load})
    mesh.settle()
    mesh.run_for(0.2)
    before = bundles(mesh)
    harvest = sim.request("hub", "@site", "shed", to="load > 0.5 and not (load > 1)", merge=merge)
    mesh.run_for(1.0)
    assert harvest.result is not None
    assert (harvest.result.asked, harvest.result.complete) == (("n1", "n2"), True)
    assert harvest.result.value == ({"n1": 1, "n2": 1} if merge else ["n1", "n2"])
    assert bundles(mesh) - before <= 4, "two requests, two reports; nothing to the site that does not match"
    with pytest.raises(UsageError, match="column 7"):
        sim.request("hub", "@site", to="load >")


@pytest.mark.parametrize("merge", ["", "histogram"])
def test_a_request_that_comes_to_a_changed_site_is_not_delivered_there(merge: str) -> None:
    mesh = star()
    sim = mesh.simulator
    for name in ("n1", "n2"):
        sim.subscribe(name, "@site")
        mesh.set_attributes(name, {"on": True})
    mesh.settle()
    mesh.run_for(0.2)
    harvest = sim.request("hub", "@site", to="on", merge=merge)
    mesh.set_attributes("n2", {"on": False})
    mesh.run_for(1.0)
    assert harvest.result is not None
    assert (harvest.result.asked, harvest.result.complete) == (("n1", "n2"), True)
    assert harvest.result.value == ({"n1": 1} if merge else ["n1"])
    assert mesh.counters("n2")["dropped.not_selected"] == 1
    assert mesh.counters("n2").get("requests_received", 0) == 0


@pytest.mark.parametrize("seed", range(SEEDS))
def test_changing_sites_get_all_and_only_what_is_for_them(seed: int) -> None:
    run = ChangingSites(seed, SITES)
    run.begin(seed)
    run.run(messages=60, changes=3 * SITES, faults=seed % 2, seconds=3.0)
    found = run.check()
    assert found["delivered"] > 3 * SITES
    assert found["matched_throughout"] > 2 * SITES
    assert found["refused_at_the_site"] > 0, "some changed while a message was under way"
    assert found["links_idle"] > SITES, "there were links to save"
