"""What a tail asks of a peer: read once, refused when it lies about its way, shorter after every hop."""

import pytest
from hypothesis import given
from support_frames import TAILS
from support_nodes import below, tail

from anabranch.overlay.codec import decode_tail, encode_tail
from anabranch.overlay.errors import DropReason, PeerError
from anabranch.overlay.forwarding import Forwarding
from anabranch.overlay.headers import PASSES_MAX, PATH_MAX_PEERS, Tail
from anabranch.overlay.routes import Route


@pytest.fixture
def forwarding() -> Forwarding:
    return Forwarding("me", 4, 8)


def refusal(forwarding: Forwarding, refused: Tail) -> DropReason:
    with pytest.raises(PeerError) as caught:
        forwarding.plan(encode_tail(refused))
    return caught.value.reason


def test_a_plan_names_the_way_here_and_gives_each_next_peer_its_part(forwarding: Forwarding) -> None:
    asked = tail(
        "p", "q", to=[("x", below(True, ("y", below(True)))), ("z", below(False))], generation=3, epoch=9
    )
    plan = forwarding.plan(encode_tail(asked))
    assert (plan.origin, plan.epoch, plan.generation) == ("p", 9, 3)
    assert plan.path == ("p", "q", "me")
    assert plan.deliver
    assert [peer for peer, _ in plan.branches] == ["x", "z"]
    parts = [decode_tail(part) for _, part in plan.branches]
    assert [part.via for part in parts] == [["p", "q", "me"]] * 2
    assert [part.deliver for part in parts] == [True, False]
    assert [[peer for peer, _ in part.branches] for part in parts] == [["y"], []]


def test_a_flow_is_read_once(forwarding: Forwarding) -> None:
    encoded = encode_tail(tail("p"))
    assert forwarding.plan(encoded) is forwarding.plan(bytes(encoded))


def test_plans_are_bounded_and_refused_tails_are_not_kept(forwarding: Forwarding) -> None:
    for generation in range(20):
        forwarding.plan(encode_tail(tail("p", generation=generation)))
        refusal(forwarding, tail("p", "me", generation=generation))
    assert len(forwarding.plans) <= 4


@pytest.mark.parametrize(
    "lie",
    [
        tail("me"),
        tail("p", "me"),
        tail("p", "me", "q"),
        tail("p", "q", to=[("q", below(True))]),
        tail("p", to=[("me", below(True))]),
        tail("p", to=[("p", below(True))]),
        Tail("p", 1, 1, [], True, []),
        Tail("p", 1, 1, ["q"], True, []),
        tail(*[f"p{number}" for number in range(PATH_MAX_PEERS + 1)]),
        tail("p", to=[(f"x{number}", below(True)) for number in range(9)]),
        tail("a b"),
        tail("p", "x" * 65),
        tail("p", to=[("", below(True))]),
        tail("p", destinations=["ok", "/"]),
        tail("p", to=[("x", below(True)), ("y", below(True)), ("x", below(True))]),
        tail("p", "q", "q"),
    ],
    ids=[
        "our own name as origin",
        "passed us last",
        "passed us before",
        "back to the last",
        "back to us",
        "back to the origin",
        "no path",
        "another origin",
        "too long",
        "too wide",
        "bad origin",
        "bad name on the path",
        "bad next peer",
        "bad receiver",
        "the same next peer twice",
        "the same peer passed twice",
    ],
)
def test_a_way_that_cannot_be_is_malformed(forwarding: Forwarding, lie: Tail) -> None:
    assert refusal(forwarding, lie) is DropReason.MALFORMED


def test_the_longest_path_and_the_widest_fan_pass(forwarding: Forwarding) -> None:
    forwarding.plan(encode_tail(tail(*[f"p{number}" for number in range(PATH_MAX_PEERS)])))
    forwarding.plan(encode_tail(tail("p", to=[(f"x{number}", below(True)) for number in range(8)])))


def test_a_loop_further_down_ends_at_the_peer_that_meets_it(forwarding: Forwarding) -> None:
    encoded = encode_tail(tail("p", to=[("x", below(False, ("me", below(True))))]))
    ((peer, part),) = forwarding.plan(encoded).branches
    with pytest.raises(PeerError, match="loop"):
        Forwarding(peer, 4, 8).plan(part)


def test_a_repair_may_turn_back_once_and_delivers_only_further_on(forwarding: Forwarding) -> None:
    plan = forwarding.plan(encode_tail(tail("me", "q", deliver=False, to=[("x", below(True))])))
    assert plan.path == ("me", "q", "me")
    assert not plan.deliver
    assert [peer for peer, _ in plan.branches] == ["x"]
    for lie in (
        tail("me", "q", to=[("x", below(True))]),
        tail("me", "q", "me", "q", deliver=False, to=[("x", below(True))]),
        tail("p", "q", deliver=False, to=[("p", below(True))]),
        tail("p", "q", "p", deliver=False, to=[("p", below(False, ("x", below(True))))]),
    ):
        assert refusal(forwarding, lie) is DropReason.MALFORMED


@given(TAILS)
def test_whatever_decodes_is_planned_without_loops_or_refused_as_malformed(any_tail: Tail) -> None:
    try:
        plan = Forwarding("me", 4, 8).plan(encode_tail(any_tail))
    except PeerError as error:
        reason = error.reason
    else:
        reason = DropReason.MALFORMED
        assert plan.path[-1] == "me"
        assert all(plan.path.count(peer) <= PASSES_MAX for peer in plan.path)
        assert not plan.deliver or plan.path.count("me") == 1
        assert all(plan.path.count(peer) < PASSES_MAX for peer, _ in plan.branches)
    assert reason is DropReason.MALFORMED


def test_a_light_clients_bundle_takes_our_route_in_its_own_name(forwarding: Forwarding) -> None:
    asked = encode_tail(tail("client", destinations=["x", "y"], epoch=7))
    plan = forwarding.plan(asked)
    ours = Route(3, (("x", encode_tail(tail("me", to=[("y", below(True))], generation=3))),), 2, ())
    branches = forwarding.attached_branches(asked, plan, ours)
    assert forwarding.attached_branches(asked, plan, ours) is branches
    ((peer, part),) = branches
    read = decode_tail(part)
    assert (peer, read.origin, read.epoch, read.generation, read.via) == (
        "x",
        "client",
        7,
        3,
        ["client", "me"],
    )
    assert read.deliver
    assert [name for name, _ in read.branches] == ["y"]
    moved = Route(4, ours.branches, 2, ())
    ((_, part),) = forwarding.attached_branches(asked, plan, moved)
    assert decode_tail(part).generation == 4


def test_routes_of_light_clients_are_bounded(forwarding: Forwarding) -> None:
    route = Route(1, (), 0, ())
    for generation in range(20):
        asked = encode_tail(tail("client", destinations=["x"], generation=generation))
        forwarding.attached_branches(asked, forwarding.plan(asked), route)
    assert len(forwarding._attached) <= 4
