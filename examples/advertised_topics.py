"""Advertised topics: a discovery node, a creator that grants a right, a holder that finds and reads.

Run it: `python examples/advertised_topics.py`
"""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from anabranch import Peer, UsageError

COMMAND = "import sys; from anabranch.tools.cli import main; sys.argv[0] = 'anabranch'; main()"


def keys(place: Path, *arguments: str) -> None:
    """`anabranch keys …`, as an operator calls it on a host of its own."""
    command = [sys.executable, "-c", COMMAND, "keys", *arguments]
    subprocess.run(command, check=True, cwd=place, stdout=subprocess.DEVNULL)  # noqa: S603 - our own


async def main(place: Path) -> None:
    """Create, find, grant, publish, revoke."""
    keys(place, "ca", "authority", "--domain", "example.org")
    keys(place, "issue", "authority", "registry", "--tdn")
    for name in ("tower", "field", "stranger"):
        keys(place, "issue", "authority", name)
    async with (
        Peer(
            "registry", listen="tcp://127.0.0.1:0", identity=place / "registry", tdn=place / "topics"
        ) as registry,
        Peer("tower", join=registry.addresses, identity=place / "tower") as tower,
        Peer("field", join=registry.addresses, identity=place / "field") as field,
        Peer("stranger", join=registry.addresses, identity=place / "stranger") as stranger,
    ):
        for peer in (tower, field, stranger):
            others = {"registry", "tower", "field", "stranger"} - {peer.name}
            await peer.wait_for_peers(*others, timeout=10)
        topic = await tower.create_topic(
            "air/radar", text="plots of the radar", properties={"range": 40}, restricted=True, sealed=True
        )
        given = await topic.grant("field", subscribe=True)
        print(f"granted: {given.terms['verbs']} to {given.holder}, handed over: {given.handed}")

        found = await field.discover("range > 30", by="sql")
        print(f"found {len(found.topics)} topic of {found.topics[0].creator} at {found.answered[0]}")
        try:
            (await stranger.discover("plots")).topics[0].subscribe()
        except UsageError:
            print("stranger: no right to subscribe")

        async with found.topics[0].subscribe() as plots, await topic.publisher() as publisher:
            await tower.wait_for_subscribers(topic.name, timeout=10)
            await publisher.put({"altitude": 9100})
            print(f"field reads {(await plots.receive(timeout=10)).payload}")
            await topic.revoke("field")
            print(f"after revocation {len(tower.subscribers(topic.name))} subscribers")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory)))
