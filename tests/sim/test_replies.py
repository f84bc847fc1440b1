"""Requests and replies over several hops in virtual time, and through trouble."""

import contextlib
import os
import random

import msgspec
import pytest
from reply_mesh import run_seed

from anabranch.overlay import reporting, siting
from anabranch.overlay.asking import Protocol
from anabranch.overlay.config import Config
from anabranch.overlay.errors import DropReason, UsageError
from anabranch.overlay.headers import Record, RecordKind
from anabranch.overlay.links import Link
from anabranch.overlay.merging import Merge
from anabranch.overlay.qos import Role, Variant
from anabranch.overlay.replywire import Item, Merged
from anabranch.overlay.tending import Tended
from anabranch.security.signing import NullVerifier
from anabranch.transport.simulator import DECLINE, LATER, Conditions, SimAsked, Simulator

SEEDS = int(os.environ.get("REPLY_SEEDS", "10"))
BLOCK = 5


def tree(**changes: object) -> Simulator:
    """root > a, b; a > a1, a2; b > b1; every peer has two subscribers, and a client hangs on b1."""
    sim = Simulator(1, default=Conditions(delay_s=0.01))
    config = Config(neighbours_target=0).replace(**changes)
    for name, seeds in (
        ("root", ()),
        ("a", ["root"]),
        ("b", ["root"]),
        ("a1", ["a"]),
        ("a2", ["a"]),
        ("b1", ["b"]),
    ):
        sim.add_peer(name, seeds=seeds, config=config)
    sim.add_peer("client", seeds=["b1"], config=Config(role=Role.CLIENT))
    for name in ("a", "b", "a1", "a2", "b1", "client"):
        sim.subscribe(name, "q")
        sim.subscribe(name, "q")
    assert sim.run_until_true(sim.is_settled, 10)
    return sim


@pytest.mark.parametrize("origin", ["root", "client"])
@pytest.mark.parametrize("protocol", list(Protocol))
def test_every_subscriber_answers_once_and_the_end_is_known_without_a_time_out(
    protocol: Protocol, origin: str
) -> None:
    sim = tree()
    merge = "count" if protocol is Protocol.MERGE else ""
    harvest = sim.request(origin, "q", protocol=protocol, merge=merge, tau_s=2.0)
    sim.run_for(0.3)
    result = harvest.result
    assert result is not None
    assert (result.complete, result.answered, result.missing, result.outstanding) == (True, 12, (), 0)
    assert result.value == 12 if merge else len(result.value) == 12  # type: ignore[arg-type]
    assert "asked_again" not in sim.counters()


def test_merged_replies_reach_the_publisher_in_one_message_per_child() -> None:
    sim = tree()
    took: list[str] = []
    replies = sim.peer("root").node._replies
    take = replies.harvests.take

    def noting(report, sender, now):  # type: ignore[no-untyped-def]
        took.append(sender)
        return take(report, sender, now)

    replies.harvests.take = noting  # type: ignore[method-assign]
    harvest = sim.request("root", "q", merge="histogram", protocol=Protocol.MERGE)
    sim.run_for(1.0)
    assert harvest.result is not None
    assert harvest.result.value == dict.fromkeys(("a", "b", "a1", "a2", "b1", "client"), 2)
    assert sorted(took) == ["a", "b"]


def test_nobody_subscribed_is_an_immediate_explicit_result() -> None:
    sim = tree()
    harvest = sim.request("root", "nothing")
    sim.run_for(0.0)
    assert harvest.result is not None
    assert (harvest.result.complete, harvest.result.asked, harvest.result.value) == (True, (), [])


def test_a_subscriber_answers_once_and_values_of_another_type_are_refused() -> None:
    sim = tree()
    asked: list[SimAsked] = []
    for name in ("b", "a1", "a2", "b1", "client"):
        sim.respond(name, lambda _: 1)
    sim.respond("a", lambda each: asked.append(each) or LATER)  # type: ignore[func-returns-value]
    sim.request("root", "q", expects=[["int"]])
    sim.run_for(0.2)
    peer = sim.peer("a")
    with pytest.raises(UsageError, match="type int"):
        peer.answer(asked[0], "seven", sim.now)
    assert peer.answer(asked[0], 7, sim.now)
    with pytest.raises(UsageError, match="answered before"):
        peer.answer(asked[0], 8, sim.now)


def test_who_declines_is_counted_and_not_waited_for() -> None:
    sim = tree()
    sim.respond("a1", lambda _: DECLINE)
    harvest = sim.request("root", "q", merge="count")
    sim.run_for(0.3)
    assert harvest.result is not None
    assert (harvest.result.complete, harvest.result.answered, harvest.result.declined) == (True, 10, 2)


@pytest.mark.parametrize("merge", ["", "count"])
def test_at_its_deadline_the_best_partial_result_names_who_is_missing(merge: str) -> None:
    sim = tree()
    sim.respond("a2", lambda _: LATER)
    harvest = sim.request("root", "q", merge=merge, within_s=1.0)
    sim.run_for(1.01)
    result = harvest.result
    assert result is not None
    assert not result.complete
    assert result.answered == 10
    assert [(each.site, each.where) for each in result.missing] == [("a2", "a>a2")]
    assert "no answer in time" in result.missing[0].why


def test_a_snapshot_shows_what_there_is_and_a_lower_bound_of_the_rest() -> None:
    sim = tree()
    asked: list[SimAsked] = []
    sim.respond("a2", lambda each: asked.append(each) or LATER)  # type: ignore[func-returns-value]
    harvest = sim.request("root", "q", merge="count")
    sim.run_for(0.3)
    sim.peer("root").snapshot(harvest, 0.5, sim.now)
    sim.run_for(0.5)
    (seen,) = harvest.snapshots
    assert (seen.value, seen.complete, seen.outstanding) == (10, False, 2)
    assert harvest.result is None
    for each in asked:
        sim.peer("a2").answer(each, 1, sim.now)
    sim.run_for(0.3)
    assert harvest.result is not None
    assert (harvest.result.value, harvest.result.complete) == (12, True)


def test_closing_frees_every_peer_on_the_way_and_later_answers_are_discarded() -> None:
    sim = tree()
    asked: list[SimAsked] = []
    sim.respond("a2", lambda each: asked.append(each) or LATER)  # type: ignore[func-returns-value]
    harvest = sim.request("root", "q", merge="count")
    sim.run_for(0.3)
    sim.peer("root").close_request(harvest, sim.now)
    sim.run_for(0.1)
    assert not sim.peer("a2").answer(asked[0], 1, sim.now)
    assert sum(len(sim.peer(name).node._replies.tending) for name in ("a", "a2")) == 0
    assert harvest.result is not None
    assert not harvest.result.complete


def test_the_publishers_crash_frees_the_state_everywhere() -> None:
    sim = tree()
    sim.respond("a2", lambda _: LATER)
    sim.request("root", "q", within_s=3600.0)
    sim.run_for(0.3)
    assert len(sim.peer("a2").node._replies.tending) == 1
    sim.crash("root")
    sim.run_for(10.0)
    assert all(len(peer.node._replies.tending) == 0 for peer in sim.running())


def test_peers_with_and_without_state_share_a_tree() -> None:
    sim = Simulator(2, default=Conditions(delay_s=0.01))
    names = [f"p{number}" for number in range(6)]
    for number, name in enumerate(names):
        config = Config(neighbours_target=0, reply_state=number % 2 == 0)
        sim.add_peer(name, seeds=names[number - 1 : number], config=config)
        sim.subscribe(name, "q")
    assert sim.run_until_true(sim.is_settled, 10)
    harvest = sim.request("p0", "q", merge="count")
    sim.run_for(0.5)
    assert harvest.result is not None
    assert (harvest.result.value, harvest.result.complete) == (6, True)


def test_a_merge_that_a_peer_on_the_way_lacks_is_made_further_up() -> None:
    sim = tree()
    for name in ("root", "b"):
        sim.peer(name).node.register_merge("longest", lambda x, y: max(x, y, key=len))
    harvest = sim.request("root", "q", merge="longest")
    sim.run_for(0.5)
    assert harvest.result is not None
    assert (harvest.result.value, harvest.result.complete, harvest.result.answered) == ("client", True, 12)


def test_a_subscription_made_before_a_reply_is_in_effect_when_it_arrives() -> None:
    sim = tree()
    later = sim.peer("a2")
    for source, target in (("a", "a2"), ("a2", "a")):
        sim.set_conditions(source, target, Conditions(delay_s=0.01))
    harvest = sim.request("root", "q")
    asked: list[SimAsked] = []
    sim.respond("a2", lambda each: asked.append(each) or LATER)  # type: ignore[func-returns-value]
    sim.run_for(0.2)
    lost = later.node._parts.telling._spreading._flood
    later.node._parts.telling._spreading._flood = lambda *_: []  # type: ignore[method-assign]
    fresh = sim.subscribe("a2", "news")
    later.node._parts.telling._spreading._flood = lost  # type: ignore[method-assign]
    for each in asked:
        later.answer(each, 1, sim.now)
    assert sim.run_until_true(lambda: harvest.result is not None, 1.0)
    sim.publish("root", "news", b"x")
    sim.run_for(0.2)
    assert fresh.count == 1


def test_a_relay_that_dies_costs_no_site_behind_it_its_reply() -> None:
    sim = Simulator(3, default=Conditions(delay_s=0.01))
    config = Config(neighbours_target=0)
    for name, seeds in (
        ("root", ()),
        ("r1", ["root"]),
        ("r2", ["root"]),
        ("x", ["r1", "r2"]),
        ("y", ["r1", "r2"]),
    ):
        sim.add_peer(name, seeds=seeds, config=config)
    for name in ("r1", "x", "y"):
        sim.subscribe(name, "q")
    assert sim.run_until_true(sim.is_settled, 10)
    asked: list[SimAsked] = []
    for name in ("x", "y"):
        sim.respond(name, lambda each: asked.append(each) or LATER)  # type: ignore[func-returns-value]
    harvest = sim.request("root", "q", merge="collect")
    sim.run_for(0.1)
    sim.crash("r1", reset=True)
    sim.run_for(0.01)
    for each in asked:
        sim.peer(each.site).answer(each, each.site, sim.now)
    assert sim.run_until_true(lambda: harvest.result is not None, 2.0)
    result = harvest.result
    assert result is not None
    assert result.value == [("x", "x"), ("y", "y")]
    assert [each.site for each in result.missing] == ["r1"]


@pytest.mark.parametrize("silenced", ["r", "x"])
def test_a_site_whose_link_one_end_alone_is_known_to_have_is_asked_all_the_same(silenced: str) -> None:
    """What the other end told of it got lost on the way to the publisher."""
    sim = Simulator(5, default=Conditions(delay_s=0.01))
    config = Config(neighbours_target=0)
    for name, seeds in (("root", ()), ("r", ["root"])):
        sim.add_peer(name, seeds=seeds, config=config)
    assert sim.run_until_true(sim.is_settled, 10)
    sim.run_for(1.0)
    telling = sim.peer("root").node._parts.spreading
    refusal = telling._refusal

    def hear(record: Record, link: Link) -> DropReason | None:
        is_lost = (record.origin, record.kind) == (silenced, int(RecordKind.LINKS))
        return DropReason.STALE if is_lost else refusal(record, link)

    telling._refusal = hear  # type: ignore[method-assign]
    sim.add_peer("x", seeds=["r"], config=config)
    sim.subscribe("x", "q")
    sim.run_for(2.0)
    root = sim.peer("root").node
    assert "x" not in root.routes.reachable()
    harvest = sim.request("root", "q")
    sim.run_for(1.0)
    assert harvest.result is not None
    assert (harvest.result.asked, harvest.result.complete) == (("x",), True)


def test_a_peer_that_answers_and_leaves_takes_no_reply_with_it() -> None:
    sim = Simulator(4, default=Conditions(delay_s=0.04))
    config = Config(neighbours_target=0)
    for name, seeds in (("root", ()), ("r", ["root"]), ("x", ["r"]), ("y", ["r"])):
        sim.add_peer(name, seeds=seeds, config=config)
    for name in ("r", "x", "y"):
        sim.subscribe(name, "q")
    assert sim.run_until_true(sim.is_settled, 10)
    sim.respond("y", lambda each: LATER)
    harvest = sim.request("root", "q", merge="count")
    sim.run_for(0.2)  # x has answered, and waits at r for y
    sim.leave("r")
    assert sim.run_until_true(lambda: harvest.result is not None, 5.0)
    result = harvest.result
    assert result is not None
    assert (result.value, [each.site for each in result.missing]) == (2, ["y"])


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_results_are_the_truth_under_faults(first: int) -> None:
    """REPLY_SEEDS=2000 runs more."""
    ended = complete = 0
    for seed in range(first, first + BLOCK):
        requests, whole = run_seed(seed)
        ended += requests
        complete += whole
    assert 0 < complete < ended


@pytest.mark.parametrize("seed", [25, 61, 91, 145])
def test_what_was_on_its_way_over_a_relay_that_dies_keeps_nobody_waiting_for_a_check(seed: int) -> None:
    """The request takes a detour over peers that have it already: they must not wait for each other."""
    rng = random.Random(seed)
    sim = Simulator(seed, check=False, default=Conditions(delay_s=0.0003, jitter_s=0.0003))
    sites = ("s1", "s2", "s3", "s4")
    for relay in ("r1", "r2"):
        sim.add_peer(relay, config=Config(neighbours_target=0))
    for name in (*sites, "asker"):
        sim.add_peer(name, config=Config(neighbours_target=0), seeds=["r1", "r2"])

    def respond(asked: SimAsked) -> object:
        peer, delay_s = sim.peer(asked.site), rng.uniform(0, 0.15)
        sim.at(sim.now + delay_s, lambda: peer.is_running and peer.answer(asked, asked.site, sim.now))  # type: ignore[arg-type,return-value]
        return LATER

    for name in ("r1", "r2", *sites):
        sim.subscribe(name, "q")
        sim.respond(name, respond)
    for a in ("r1", "r2"):
        for b in (*sites, "asker"):
            delay_s = rng.choice((0.0002, 0.001, 0.01, 0.03))
            sim.connect(a, b, Conditions(delay_s=delay_s, jitter_s=0.001))
    assert sim.run_until_true(sim.is_settled, 20)
    sim.run_for(2)
    harvests = [sim.request("asker", "q", merge="collect" if each % 2 else "") for each in range(25)]
    sim.run_for(rng.uniform(0, 0.12))
    sim.crash("r1", reset=True)
    sim.run_for(3)
    for harvest in harvests:
        assert harvest.result is not None
        assert harvest.over_at - harvest.asked_at < 1.0
        assert {each.site for each in harvest.result.missing} <= {"r1"}


@pytest.mark.parametrize("protocol", [Protocol.DIRECT, Protocol.DATAGRAM])
def test_a_secured_site_answers_no_request_past_the_mesh(protocol: Protocol) -> None:
    class Closed(NullVerifier):
        is_open = False

    sim = tree()
    for name in ("a", "b"):
        sim.peer(name).node._parts.spreading.verifier = Closed()
    harvest = sim.request("root", "q", protocol=protocol, tau_s=0.5)
    sim.run_for(1.0)
    assert harvest.result is not None
    assert harvest.result.answered == 0
    assert not any(peer.replying.asked for peer in sim.running())
    assert sim.counters()["dropped.untrusted"] == 2


@pytest.mark.parametrize("merge", ["", "collect"])
def test_replies_that_find_no_room_at_the_publisher_are_told_as_missing(merge: str) -> None:
    sim = tree(harvest_max_bytes=30_000)
    for name in ("a", "b", "a1", "a2", "b1", "client"):
        sim.respond(name, lambda _: b"x" * 4000)
    harvest = sim.request("root", "q", merge=merge)
    sim.run_for(1.0)
    result = harvest.result
    assert result is not None
    assert not result.complete
    assert 0 < len(result.missing) < 6
    assert all("no room for its replies" in each.why for each in result.missing)
    assert sim.counters(["root"])["replies_refused"] > 0
    assert sim.peer("root").node._replies.harvests.bytes == 0


NO_VALUE = msgspec.Raw(b"\xa1\xff")
"""A text that is none, well-formed otherwise."""


@pytest.mark.parametrize("merge", ["", "collect"])
@pytest.mark.parametrize("protocol", list(Protocol))
def test_a_reply_that_cannot_be_read_does_not_count_and_its_site_is_missing(
    protocol: Protocol, merge: str
) -> None:
    sim = tree()
    sim.peer("a1").node._replies.siting.checked = lambda *_: NO_VALUE  # type: ignore[method-assign]
    merge = merge or ("collect" if protocol is Protocol.MERGE else "")
    harvest = sim.request("root", "q", protocol=protocol, merge=merge, tau_s=2.0)
    sim.run_for(0.3)
    result = harvest.result
    assert result is not None
    assert (result.complete, result.answered, result.outstanding) == (False, 10, 1)
    assert len(result.value) == 10  # type: ignore[arg-type]
    assert [(each.site, each.where, each.why) for each in result.missing] == [
        ("a1", "a>a1", "its reply cannot be read")
    ]
    assert sim.counters(["root"])["dropped.malformed"] == 2


def test_a_site_whose_reply_cannot_be_read_is_not_complete_by_saying_that_it_has_no_subscribers() -> None:
    sim = tree()
    siting = sim.peer("a1").node._replies.siting
    siting.checked = lambda *_: NO_VALUE  # type: ignore[method-assign]
    vouching = siting._reporting.vouching
    vouching.ended = lambda key, site, subscribers: (site, 0, b"")  # type: ignore[method-assign]
    harvest = sim.request("root", "q")
    sim.run_for(0.3)
    assert harvest.result is not None
    assert not harvest.result.complete
    assert [each.site for each in harvest.result.missing] == ["a1"]


@pytest.mark.parametrize("is_spoilt_twice", [False, True])
def test_merged_replies_that_cannot_be_read_are_asked_for_once_more(
    is_spoilt_twice: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_part, spoilt = siting.own_part, 0

    def spoil(state: Tended, me: str, merge: Merge) -> Merged | None:
        nonlocal spoilt
        part = own_part(state, me, merge)
        if part is None or me != "a1" or (spoilt and not is_spoilt_twice):
            return part
        spoilt += 1
        return Merged(part.mask, part.answered, part.declined, NO_VALUE)

    monkeypatch.setattr(siting, "own_part", spoil)
    sim = tree()
    harvest = sim.request("root", "q", merge="collect")
    sim.run_for(0.05)
    sim.peer("root").snapshot(harvest, 0.02, sim.now)
    sim.run_for(0.5)
    (seen,) = harvest.snapshots
    assert (seen.complete, seen.error) == (False, "")
    result = harvest.result
    assert result is not None
    whole = 10 if is_spoilt_twice else 12
    assert (result.error, result.complete, result.answered) == ("", not is_spoilt_twice, whole)
    assert len(result.value) == whole  # type: ignore[arg-type]
    missing = [(each.site, each.why) for each in result.missing]
    assert missing == ([("a1", "its reply cannot be read")] if is_spoilt_twice else [])
    assert spoilt == 1 + is_spoilt_twice


@pytest.mark.parametrize("variant", [Variant.BP_QOS_MP, Variant.ADAPTIVE])
def test_copies_of_a_request_are_answered_once_and_nobody_waits_for_them(variant: Variant) -> None:
    sim = Simulator(4, default=Conditions(delay_s=0.01))
    config = Config(neighbours_target=0, variant=variant)
    for name, seeds in (
        ("root", ()),
        ("l", ["root"]),
        ("r", ["root"]),
        ("end", ["l", "r"]),
        ("far", ["end"]),
    ):
        sim.add_peer(name, seeds=seeds, config=config)
        sim.subscribe(name, "q")
    assert sim.run_until_true(sim.is_settled, 10)
    sim.run_for(2.0)
    for merge in ("", "count"):
        harvest = sim.request("root", "q", merge=merge)
        sim.run_for(0.2)
        assert harvest.result is not None
        assert (harvest.result.complete, harvest.result.answered) == (True, 5)
        assert harvest.over_at - harvest.asked_at < 0.1
    if variant is Variant.BP_QOS_MP:
        assert sim.counters()["request_copies"] > 0


NASTY = (-1, 0, 2**63, 2**64 - 1, "", "x" * 300, b"", b"\xff" * 40, None, [], [[]], {}, True, 1e300)


def spoilt(value: object, rng: random.Random) -> object:
    """The same, with something in it that makes no sense."""
    if rng.random() < 0.03:
        return rng.choice(NASTY)
    if isinstance(value, list):
        items = [spoilt(each, rng) for each in value]
        return items * 2 if rng.random() < 0.02 else items
    return value


@pytest.mark.parametrize("seed", range(6))
def test_nonsense_in_requests_and_reports_harms_nobody(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    encode = reporting.encode_items

    def spoil(items: list[Item]) -> bytes:
        return msgspec.msgpack.encode(spoilt(msgspec.msgpack.decode(encode(items)), rng))

    sim = tree(harvests_max=50, harvest_max_bytes=100_000)
    monkeypatch.setattr(reporting, "encode_items", spoil)
    monkeypatch.setattr(siting, "encode_items", spoil)

    def answer(asked: SimAsked) -> object:
        with contextlib.suppress(UsageError):  # another type is asked for by now
            sim.peer(asked.site).answer(asked, 1, sim.now)
        return LATER

    for name in ("a", "b", "a1", "a2", "b1", "client"):
        sim.respond(name, answer)
    harvests = []
    for number in range(60):
        protocol = list(Protocol)[number % 6]
        origin = rng.choice(("root", "client", "a", "b1"))
        merge = rng.choice(("collect", "sum", "")) if protocol is not Protocol.MERGE else "quantiles"
        harvests.append(sim.request(origin, "q", protocol=protocol, merge=merge, within_s=1.0))
        sim.run_for(0.05)
    sim.run_for(2.0)
    assert all(harvest.result is not None for harvest in harvests)
    monkeypatch.undo()
    healthy = sim.request("root", "q")
    sim.run_for(0.5)
    assert healthy.result is not None
    assert healthy.result.complete
