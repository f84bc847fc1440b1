"""A publisher that asks for an availability, on real sockets: enough paths, and each message once."""

import sys
from pathlib import Path

import pytest

from anabranch import Config, Peer, UsageError, blocking
from anabranch.transport.loops import run

sys.path.insert(0, str(Path(__file__).parent))
from support_peers import LOCAL, WAIT_S, take, until

NINES = 0.999_99


def test_messages_take_two_paths_and_arrive_once() -> None:
    async def scenario() -> None:
        async with (
            Peer("a", listen=LOCAL) as a,
            Peer("b", listen=LOCAL, join=a.addresses) as b,
            Peer("c", listen=LOCAL, join=[*a.addresses, *b.addresses]) as c,
        ):
            wanted = c.subscribe("t")
            await a.wait_for_subscribers("t", timeout=WAIT_S)
            plain = await a.publisher("t")
            sure = await a.publisher("t", availability=NINES)
            await until(lambda: sure.availability > NINES, "both ways to c are known")
            assert 0.9 < plain.availability <= 0.999
            for number in range(100):
                await sure.put(number)
            assert [message.payload for message in await take(wanted, 100)] == list(range(100))
            await until(lambda: c.counters["dropped.duplicate"] == 100, "every message came twice")
            (route,) = [route for route in a.report()["routes"] if route["availability_wanted"]]  # type: ignore[attr-defined,union-attr]
            assert (route["path"], route["copies"]) in (
                (["a", "c"], [["a", "b", "c"]]),
                (["a", "b", "c"], [["a", "c"]]),
            )

    run(scenario())


def test_what_cannot_be_reached_is_counted_and_told() -> None:
    async def scenario() -> None:
        async with Peer("a", listen=LOCAL) as a, Peer("b", join=a.addresses) as b:
            sure = await a.publisher("t", availability=NINES)
            assert sure.availability == 0.0, "nobody wants it"
            wanted = b.subscribe("t")
            await a.wait_for_subscribers("t", timeout=WAIT_S)
            await sure.put("over one link")
            assert (await wanted.receive(timeout=WAIT_S)).payload == "over one link"
            assert 0.9 < sure.availability <= 0.999
            assert a.counters["availability_short"] >= 1

    run(scenario())


@pytest.mark.parametrize("share", [0, 1, 1.5, -0.5])
def test_an_impossible_availability_names_itself_and_the_fix(share: float) -> None:
    async def scenario() -> None:
        async with Peer("a", config=Config(neighbours_target=0)) as a:
            with pytest.raises(UsageError, match=f"availability = {share}: a share above 0 and below 1"):
                await a.publisher("t", availability=share)

    run(scenario())


def test_blocking_programs_can_ask_too() -> None:
    with (
        blocking.Peer("a", listen=LOCAL) as a,
        blocking.Peer("b", join=a.addresses) as b,
        b.subscribe("t") as wanted,
    ):
        a.wait_for_subscribers("t", timeout=WAIT_S)
        publisher = a.publisher("t", availability=NINES)
        assert 0.9 < publisher.availability <= 0.999
        publisher.put(1)
        assert wanted.receive(timeout=WAIT_S).payload == 1
