"""`anabranch.testing.mesh`: real peers inside one process."""

import pytest

from anabranch.overlay.errors import ClosedError, UsageError
from anabranch.testing import mesh
from anabranch.transport.loops import run


def test_peers_are_linked_when_the_block_is_entered_and_gone_after_it() -> None:
    async def main() -> None:
        async with mesh("a", "b", "c") as peers:
            assert list(peers) == ["a", "b", "c"]
            for name, peer in peers.items():
                await peer.wait_for_peers(*(set(peers) - {name}), timeout=0.1)
            async with peers["b"].subscribe("t/*") as inbox:
                await peers["a"].wait_for_subscribers("t/1", timeout=5)
                await peers["a"].put("t/1", {"n": 1})
                message = await inbox.receive()
            assert (message.payload, message.path[0], message.path[-1]) == ({"n": 1}, "a", "b")
            held = peers["a"]
        with pytest.raises(ClosedError, match="peer a is closed"):
            held.subscribe("t")

    run(main())


def test_two_meshes_at_once_do_not_meet() -> None:
    async def main() -> None:
        async with (
            mesh("a", "b") as one,
            mesh("a", "c") as two,
            one["b"].subscribe("t") as here,
            two["c"].subscribe("t") as there,
        ):
            assert await one["a"].wait_for_subscribers("t", timeout=5) == ("b",)
            assert await two["a"].wait_for_subscribers("t", timeout=5) == ("c",)
            await one["a"].put("t", 1)
            await two["a"].put("t", 2)
            assert (await here.receive()).payload == 1
            assert (await there.receive()).payload == 2

    run(main())


def test_a_name_given_twice_is_refused() -> None:
    async def main() -> None:
        async with mesh("a", "a"):
            pass

    with pytest.raises(UsageError, match="each name once"):
        run(main())
