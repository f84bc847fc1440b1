"""Requests between peers that have to prove who they are."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from support_identities import Identities

from anabranch import Client, Config, Harvested, Peer, UsageError
from anabranch.overlay.asking import Protocol
from anabranch.transport.loops import run
from anabranch.transport.message import Message

HOST = "tcp://127.0.0.1:0"
INSIDE = (Protocol.CONVERGE, Protocol.MERGE, Protocol.STATELESS, Protocol.PUBLISH)


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Identities:
    return Identities(tmp_path_factory.mktemp("identities"))


def test_requests_work_over_a_relay_and_from_a_client_and_none_leaves_the_mesh(
    identities: Identities,
) -> None:
    async def main() -> list[Harvested]:
        config = Config(neighbours_target=0)
        async with (
            Peer("a", listen=HOST, config=config, identity=identities["a"]) as a,
            Peer("b", listen=HOST, join=a.addresses, config=config, identity=identities["b"]) as b,
            Peer("c", listen=HOST, join=b.addresses, config=config, identity=identities["c"]) as c,
            Client("d", join=c.addresses, identity=identities["d"]) as d,
        ):
            for peer in (a, b, c, d):

                async def answer(message: Message, name: str = str(peer.name)) -> None:
                    await message.reply(name)

                peer.subscribe("q", callback=answer)
            results = []
            for asker in (a, d):
                await asker.wait_for_subscribers("q", 4, timeout=10)
                for protocol in INSIDE:
                    merge = "collect" if protocol is Protocol.MERGE else ""
                    results.append(await (await asker.request("q", protocol=protocol, merge=merge, tau=5.0)))
            for protocol in set(Protocol) - set(INSIDE):
                with pytest.raises(UsageError, match="would leave the secured mesh"):
                    await a.request("q", protocol=protocol)
            return results

    for result in run(main()):
        assert (result.complete, result.answered, result.asked) == (True, 4, ("a", "b", "c", "d"))
