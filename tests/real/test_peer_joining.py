"""How peers find and lose each other: seeds that start late, restarts, beacons, clashing names, relays."""

import asyncio
import sys
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from anabranch import Config, Peer
from anabranch.transport.loops import run

sys.path.insert(0, str(Path(__file__).parent))
from support_peers import (
    CHAIN,
    LOCAL,
    WAIT_S,
    child,
    dropped,
    free_port,
    line,
    neighbours,
    take,
    troubles,
    until,
)


def test_a_peer_links_to_a_seed_that_starts_later() -> None:
    async def scenario() -> None:
        address = f"tcp://127.0.0.1:{free_port()}"
        async with Peer("b", join=address) as b, b.subscribe("t") as topics:
            with pytest.raises(TimeoutError):
                await b.wait_for_links(timeout=0.3)
            async with Peer("a", listen=address) as a:
                await a.wait_for_subscribers("t", timeout=WAIT_S)
                await a.put("t", "hello")
                assert (await topics.receive(timeout=WAIT_S)).payload == "hello"

    with capture_logs() as logs:
        run(scenario())
    assert troubles(logs) == []


def test_one_seed_is_enough_to_meet_the_others() -> None:
    async def scenario() -> None:
        config = Config.local(dial_interval_s=0.1)
        async with (
            Peer("a", listen=LOCAL, config=config) as a,
            Peer("b", listen=LOCAL, join=a.addresses, config=config) as b,
            Peer("c", listen=LOCAL, join=a.addresses, config=config) as c,
        ):
            await asyncio.gather(*(peer.wait_for_links(2, timeout=WAIT_S) for peer in (a, b, c)))
            assert neighbours(c) == ["a", "b"]
            await a.close()
            async with c.subscribe("t") as topics:
                await b.wait_for_subscribers("t", timeout=WAIT_S)
                await b.put("t", 1)
                assert (await topics.receive(timeout=WAIT_S)).path == ("b", "c")

    run(scenario())


def test_two_peers_that_dial_each_other_keep_one_link() -> None:
    async def scenario() -> None:
        ports = free_port(), free_port()
        addresses = [f"tcp://127.0.0.1:{port}" for port in ports]
        async with (
            Peer("a", listen=addresses[0], join=addresses[1]) as a,
            Peer("b", listen=addresses[1], join=addresses[0]) as b,
            b.subscribe("t") as topics,
        ):
            await a.wait_for_subscribers("t", timeout=WAIT_S)
            await asyncio.sleep(0.5)  # time for a link that should not be
            assert (neighbours(a), neighbours(b)) == (["b"], ["a"])
            publisher = await a.publisher("t")
            for number in range(100):
                await publisher.put(number)
            assert [m.payload for m in await take(topics, 100)] == list(range(100))
            assert dropped(b) == {}

    run(scenario())


@pytest.mark.parametrize("says_bye", [True, False], ids=["closed", "killed"])
def test_a_peer_restarted_under_its_name_and_port_is_recognised(says_bye: bool) -> None:
    async def scenario() -> None:
        address = f"tcp://127.0.0.1:{free_port()}"
        settings: dict[str, object] = {"listen": address, "publish": "t", "every_s": 0.01}
        async with Peer("b", join=address, config=Config.local()) as b, b.subscribe("t") as topics:
            async with child("a", **settings) as first:
                before = await topics.receive(timeout=WAIT_S)
                if not says_bye:
                    await first.kill()
            await until(lambda: neighbours(b) == [], "the first is gone")
            while topics.receive_nowait() is not None:
                pass
            async with child("a", **settings):
                started = time.monotonic()
                after = await topics.receive(timeout=WAIT_S)
                assert time.monotonic() - started < 7
                assert (before.origin, after.origin) == ("a", "a")
                assert after.sequence < 100, "a new publisher, counted from its start"
                more = await take(topics, 20)
                assert [m.sequence for m in more] == [after.sequence + 1 + n for n in range(20)]
                assert b.counters["dropped.duplicate"] == 0

    run(scenario())


def test_an_advertised_address_is_dialled_instead_of_the_bound_one() -> None:
    async def scenario() -> None:
        config = Config.local(dial_interval_s=0.1)
        async with Peer("hub", listen=LOCAL, config=config) as hub:
            real, told = free_port(), "tcp://127.0.0.1:1"
            async with (
                Peer(
                    "hidden",
                    listen=f"tcp://127.0.0.1:{real}",
                    advertise=told,
                    join=hub.addresses,
                    config=CHAIN,
                ) as hidden,
                Peer("seeker", join=hub.addresses, config=config) as seeker,
            ):
                await seeker.wait_for_peers("hidden", "hub", timeout=WAIT_S)
                await asyncio.sleep(0.5)  # it dials what it was told, in vain
                assert neighbours(seeker) == ["hub"]
                assert neighbours(hidden) == ["hub"]
            async with (
                Peer(
                    "open",
                    listen=f"tcp://127.0.0.1:{real}",
                    advertise=f"tcp://localhost:{real}",
                    join=hub.addresses,
                    config=CHAIN,
                ),
                Peer("seeker2", join=hub.addresses, config=config) as seeker2,
            ):
                await until(lambda: "open" in neighbours(seeker2), "seeker2 dialled what open told")

    run(scenario())


def test_beacons_bring_peers_together() -> None:
    async def scenario() -> None:
        group = f"udp://127.0.0.1;239.255.77.21:{free_port()}"
        async with (
            Peer("a", listen=LOCAL, beacon=group) as a,
            Peer("b", listen=LOCAL, beacon=group) as b,
            b.subscribe("t") as topics,
        ):
            await a.wait_for_subscribers("t", timeout=WAIT_S)
            await a.put("t", "we met")
            assert (await topics.receive(timeout=WAIT_S)).path == ("a", "b")

    run(scenario())


def test_a_unicast_list_replaces_multicast() -> None:
    async def scenario() -> None:
        ports = free_port(), free_port()
        groups = [f"udp://127.0.0.1;239.255.77.2{n}:{port}" for n, port in enumerate(ports)]
        async with (
            Peer("a", listen=LOCAL, beacon=groups[0], beacon_unicast=[f"127.0.0.1:{ports[1]}"]) as a,
            Peer("b", listen=LOCAL, beacon=groups[1], beacon_unicast=[f"127.0.0.1:{ports[0]}"]) as b,
        ):
            await asyncio.gather(a.wait_for_links(timeout=WAIT_S), b.wait_for_links(timeout=WAIT_S))
            assert neighbours(a) == ["b"]

    run(scenario())


def test_a_second_peer_of_the_same_name_is_counted_and_disturbs_nobody_else() -> None:
    async def scenario() -> None:
        async with (
            Peer("hub", listen=LOCAL, config=CHAIN) as hub,
            Peer("good", join=hub.addresses, config=CHAIN) as good,
            good.subscribe("t") as topics,
        ):
            await hub.wait_for_subscribers("t", timeout=WAIT_S)
            async with Peer("hub", join=hub.addresses, config=CHAIN) as impostor:
                await until(lambda: dropped(hub).get("conflict"), "the clash is counted")
                assert neighbours(impostor) == []
                publisher = await hub.publisher("t")
                for number in range(200):
                    await publisher.put(number)
                    await asyncio.sleep(0.001)
                got = await take(topics, 200)
                assert [m.payload for m in got] == list(range(200))
                assert neighbours(hub) == ["good"]

    with capture_logs() as logs:
        run(scenario())
    assert troubles(logs) == []


def test_two_peers_of_one_name_at_a_hub_leave_the_hub_working() -> None:
    async def scenario() -> None:
        async with (
            Peer("hub", listen=LOCAL, config=CHAIN) as hub,
            Peer("good", join=hub.addresses, config=CHAIN) as good,
            good.subscribe("t") as topics,
            Peer("twin", join=hub.addresses, config=CHAIN) as first,
            Peer("twin", join=hub.addresses, config=CHAIN) as second,
        ):
            await hub.wait_for_links(2, timeout=WAIT_S)
            await hub.wait_for_subscribers("t", timeout=WAIT_S)
            publisher = await hub.publisher("t")
            for number in range(300):
                await publisher.put(number)
                await asyncio.sleep(0.002)
            assert [m.payload for m in await take(topics, 300)] == list(range(300))
            assert "good" in neighbours(hub)
            assert sorted(map(neighbours, (first, second))) == [[], ["hub"]], "one of them has the name"
            assert any(dropped(peer).get("conflict") for peer in (hub, first, second)), (
                "and the clash is counted"
            )

    with capture_logs() as logs:
        run(scenario())
    assert troubles(logs) == []


def test_a_peer_told_to_join_itself_does_not() -> None:
    async def scenario() -> None:
        address = f"tcp://127.0.0.1:{free_port()}"
        async with Peer("a", listen=address, join=address) as a, Peer("b", join=address) as b:
            await b.wait_for_links(timeout=WAIT_S)
            assert neighbours(a) == ["b"]
            assert dropped(a) == {}

    run(scenario())


def test_a_line_of_peers_relays_in_both_directions_and_in_order() -> None:
    async def scenario() -> None:
        async with (
            line("a", "b", "c", "d") as (a, b, _, d),
            d.subscribe("r") as right,
            a.subscribe("l") as left,
        ):
            await a.wait_for_subscribers("r", timeout=WAIT_S)
            await d.wait_for_subscribers("l", timeout=WAIT_S)
            to_right, to_left = await a.publisher("r"), await d.publisher("l")
            for number in range(2000):
                await to_right.put(number)
                await to_left.put(-number)
            rights, lefts = await take(right, 2000), await take(left, 2000)
            assert [m.payload for m in rights] == list(range(2000))
            assert [m.payload for m in lefts] == [-number for number in range(2000)]
            assert rights[0].path == ("a", "b", "c", "d")
            assert lefts[0].path == ("d", "c", "b", "a")
            assert b.counters["forwarded"] > 0
            assert b.counters["delivered"] == 0, "a relay does not look inside"
            assert dropped(a) == dropped(b) == dropped(d) == {}

    run(scenario())


def test_order_holds_across_route_changes_and_nothing_arrives_twice() -> None:
    async def scenario() -> None:
        config = Config.local(neighbours_target=0)
        async with (
            Peer("a", listen=LOCAL, config=config) as a,
            Peer("z", listen=LOCAL, join=a.addresses, config=config) as z,
            z.subscribe("n") as numbers,
        ):
            await a.wait_for_subscribers("n", timeout=WAIT_S)
            publisher = await a.publisher("n")
            relay = child(
                "b", listen=LOCAL, join=[*a.addresses, *z.addresses], config={"neighbours_target": 0}
            )
            async with relay:
                await a.wait_for_peers("b", timeout=WAIT_S)
                link_to_z = a._running().node.links.by_peer["z"].id
                for number in range(1000):
                    await publisher.put(number)
                    if number % 10 == 0:
                        await asyncio.sleep(0.001)
                    if number == 400:  # the direct link breaks: the way leads over b
                        a._running().wiring.close_link(link_to_z)
                        a._running().closed(link_to_z)
                await publisher.put("end")
                got = []
                paths = set()
                while (message := await numbers.receive(timeout=WAIT_S)).payload != "end":
                    got.append(message.payload)
                    paths.add(message.path)
                assert got == sorted(set(got))  # type: ignore[type-var]
                assert ("a", "z") in paths
                assert ("a", "b", "z") in paths
                assert len(got) > 900

    run(scenario())
