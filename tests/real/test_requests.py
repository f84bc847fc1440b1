"""Requests and replies over real sockets, by all protocols, in both forms of the API, and by the command."""

import asyncio
import json
import subprocess
import sys

import pytest

from anabranch import Client, Harvested, Peer, UsageError, blocking
from anabranch.overlay.asking import Protocol
from anabranch.overlay.config import Config
from anabranch.transport.loops import run
from anabranch.transport.message import Message


async def give_site(message: Message) -> None:
    await message.reply(message.path[-1])


@pytest.mark.parametrize("protocol", list(Protocol))
def test_every_site_answers_once_and_the_end_is_known(protocol: Protocol) -> None:
    async def main() -> Harvested:
        config = Config(neighbours_target=0)
        async with (
            Peer("a", listen="tcp://127.0.0.1:0", config=config, open=True) as a,
            Peer("b", listen="tcp://127.0.0.1:0", join=a.addresses, config=config, open=True) as b,
            Peer("c", listen="tcp://127.0.0.1:0", join=b.addresses, config=config, open=True) as c,
            Client("d", join=c.addresses, open=True) as d,
        ):
            for peer in (a, b, c, d):
                peer.subscribe("q", callback=give_site)
            await a.wait_for_subscribers("q", 4, timeout=5)
            merge = "collect" if protocol is Protocol.MERGE else ""
            harvest = await a.request("q", {"x": 1}, protocol=protocol, merge=merge, expects=str, tau=3.0)
            one_by_one = [reply.value async for reply in harvest]
            result = await asyncio.wait_for(harvest, 2.0)
            assert merge or sorted(map(str, one_by_one)) == ["a", "b", "c", "d"]
            assert not harvest.ready()
            return result

    result = run(main())
    assert (result.complete, result.answered, result.asked) == (True, 4, ("a", "b", "c", "d"))
    assert isinstance(result.value, list)
    assert len(result.value) == 4


def test_what_cannot_work_is_told_where_it_is_said() -> None:
    async def main() -> None:
        async with Peer("a", open=True) as a, a.subscribe("q") as questions:
            for options in (
                {"protocol": "pigeon"},
                {"merge": "magic"},
                {"within": 0},
                {"tau": -1},
                {"expects": 3},
            ):
                with pytest.raises(UsageError):
                    await a.request("q", **options)  # type: ignore[arg-type]
            await a.put("q", 1)
            with pytest.raises(UsageError, match="asks for no reply"):
                await (await questions.receive(timeout=5)).reply(1)
            harvest = await a.request("q", expects=int)
            message = await questions.receive(timeout=5)
            assert message.wants_reply
            with pytest.raises(UsageError, match="type int"):
                await message.reply("one")
            assert await message.reply(1)
            with pytest.raises(UsageError, match="once"):
                await message.decline()
            assert (await harvest).value == [1]
            assert not await message.reply(2), "it is over"

    run(main())


def test_the_blocking_api_asks_and_answers() -> None:
    with (
        blocking.Peer("a", listen="tcp://127.0.0.1:0", open=True) as a,
        blocking.Peer("b", join=a.addresses, open=True) as b,
        b.subscribe("q", callback=lambda message: message.reply(message.payload)),  # type: ignore[arg-type,return-value]
    ):
        a.wait_for_subscribers("q", timeout=5)
        harvest = a.request("q", 7)
        assert [(reply.site, reply.value) for reply in harvest] == [("b", 7)]
        assert harvest.wait().complete
        with b.subscribe("late") as late:
            a.wait_for_subscribers("late", timeout=5)
            with a.request("late", merge="count") as view:
                message = late.receive(timeout=5)
                assert view.snapshot().outstanding == 1
                assert message.reply()
                assert view.wait().value == 1


def test_the_command_asks_and_prints() -> None:
    async def main() -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
        async with Peer("a", listen="tcp://127.0.0.1:0", open=True) as a:
            a.subscribe("q", callback=give_site)
            start = "import sys; sys.argv[0] = 'anabranch'; from anabranch.tools.cli import main; main()"
            command = [sys.executable, "-c", start, "request", "--join", a.addresses[0]]

            def call(*rest: str) -> subprocess.CompletedProcess[str]:
                return subprocess.run(
                    [*command, *rest], capture_output=True, text=True, timeout=30, check=False
                )

            plain = await asyncio.to_thread(call, "q")
            merged = await asyncio.to_thread(call, "q", "1", "--json", "--merge", "histogram")
            a.set_attributes({"load": 0.9})
            a.subscribe("@site", callback=give_site)
            to = await asyncio.to_thread(call, "--to", "load > 0.5", "--merge", "histogram")
            assert (to.returncode, to.stdout) == (0, '{"a":1}\n'), to.stderr
            other = await asyncio.to_thread(call, "--to", "load < 0.5", "--wait", "0")
            assert (other.returncode, "nobody was asked" in other.stderr) == (1, True)
            wrong = await asyncio.to_thread(call, "q", "--to", "load <")
            assert (wrong.returncode, "column 7" in wrong.stderr) == (2, True), wrong.stderr
            nowhere = await asyncio.to_thread(call)
            assert (nowhere.returncode, "without a topic" in nowhere.stderr) == (2, True)
            return plain, merged

    plain, merged = run(main())
    assert (plain.returncode, plain.stdout) == (0, 'a\t"a"\n'), plain.stderr
    result = json.loads(merged.stdout)
    assert (result["complete"], result["value"], merged.returncode) == (True, {"a": 1}, 0)
