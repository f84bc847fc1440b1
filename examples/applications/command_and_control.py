"""Command and control: tell all sites that match at that moment, and harvest what happened.

Ten peers, each a process: `python examples/applications/command_and_control.py`. By hand, one terminal each:

    python examples/applications/command_and_control.py control --listen tcp://127.0.0.1:7401 --sites 2
    python examples/applications/command_and_control.py site --name s8 --join tcp://127.0.0.1:7401
    python examples/applications/command_and_control.py site --name s9 --join tcp://127.0.0.1:7401

On the testbed, the same program on emulated hosts:
`anabranch testbed run examples/scenarios/command-and-control.toml`
"""

import argparse
import asyncio
import contextlib
import sys

from anabranch import Message, Peer

SITES = 9
BUSY = "region = 'north' and load > 0.4"
CALM = "region = 'north' and not (load > 0.4)"
EVERYBODY = "exists(load)"
LINGER_S = 1.0
"""Sites that have ended still pass on what others answer."""


async def site(options: argparse.Namespace) -> None:
    """Carries out what it is told, and answers what came of it; `end` ends it."""
    number = int(options.name.removeprefix("s"))
    attributes = {
        "region": "north" if number % 2 else "south",
        "load": number / 10,
        "manual": number == SITES,  # somebody has to be asked there
    }
    ended = asyncio.Event()
    async with Peer(options.name, listen=options.listen, join=options.join, open=True) as peer:
        peer.set_attributes(attributes)

        async def carry_out(message: Message) -> None:
            if message.payload == "shed" and attributes["manual"]:
                await message.reply("refused")
            elif message.payload == "shed":
                attributes["load"] = round(attributes["load"] - 0.5, 1)
                peer.set_attributes(attributes)
                await message.reply("shed")
            elif message.payload == "end":
                await message.reply("ended")
                ended.set()
            else:
                await message.reply(attributes["load"])

        peer.subscribe("@site", callback=carry_out)
        await ended.wait()
        await asyncio.sleep(LINGER_S)


async def control(peer: Peer, sites: int) -> None:
    """Selects sites by what they are at that moment."""
    await peer.wait_for_subscribers("@site", sites, to=EVERYBODY, timeout=30)

    calm_before = len(peer.subscribers("@site", to=CALM))
    result = await (await peer.request(None, "shed", to=BUSY, merge="histogram"))
    print(f"asked {', '.join(result.asked)}: {dict(sorted(result.value.items()))}")

    calm_by_now = calm_before + result.value.get("shed", 0)
    calm = await peer.wait_for_subscribers("@site", max(1, calm_by_now), to=CALM, timeout=10)
    print(f"calm now: {', '.join(calm)}; still busy: {', '.join(peer.subscribers('@site', to=BUSY))}")

    async for reply in await peer.request(None, "load", to="manual or load < 0.1"):
        print(f"{reply.site} has load {reply.value}")

    result = await (await peer.request(None, "end", to=EVERYBODY, merge="count"))
    print(f"ended: {result.value}, complete: {result.complete}")


async def everything() -> None:
    """The control here, and a process for each site."""
    async with contextlib.AsyncExitStack() as stack:
        peer = await stack.enter_async_context(Peer("control", listen="tcp://127.0.0.1:0", open=True))
        for number in range(1, SITES + 1):
            role = ("site", "--name", f"s{number}", "--join", peer.addresses[0])
            process = await asyncio.create_subprocess_exec(sys.executable, __file__, *role)
            stack.push_async_callback(end, process)
        await control(peer, SITES)


async def alone(options: argparse.Namespace) -> None:
    """The control in this process, the sites elsewhere."""
    async with Peer("control", listen=options.listen, join=options.join, open=True) as peer:
        await control(peer, options.sites)


async def end(process: asyncio.subprocess.Process) -> None:
    """Wait for a site to end; without having been told it does not."""
    try:
        await asyncio.wait_for(process.wait(), 10)
    except TimeoutError:
        process.terminate()
        await process.wait()


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Command and control by selection of sites.")
    parser.add_argument("role", nargs="?", choices=["everything", "control", "site"], default="everything")
    parser.add_argument("--name", default="s1", help="of a site: s and its number")
    parser.add_argument("--listen", default="tcp://127.0.0.1:0")
    parser.add_argument("--join", action="append", default=[], help="address of any peer of the mesh")
    parser.add_argument("--sites", type=int, default=SITES, help="how many the control waits for")
    return parser.parse_args()


if __name__ == "__main__":
    chosen = parse_options()
    if chosen.role == "site":
        asyncio.run(site(chosen))
    else:
        asyncio.run(alone(chosen) if chosen.role == "control" else everything())
