"""What a payload may be, and what arrives: bytes as they are, values by msgpack.

Run it: `python examples/values.py`
"""

import asyncio
import dataclasses

import msgspec

from anabranch import Peer, UsageError


@dataclasses.dataclass
class Reading:
    """A value of the application's own."""

    celsius: float
    tags: list[str]


PAYLOADS = [
    b"\x00\x01",
    "text",
    12,
    2.5,
    True,
    None,
    [1, "two", [3]],
    {"nested": {"list": [1, 2]}},
    Reading(21.5, ["attic"]),
]


async def main() -> None:
    """Send one of each and print both ends."""
    async with (
        Peer("alice", listen="tcp://127.0.0.1:0", open=True) as alice,
        Peer("bob", join=alice.addresses, open=True) as bob,
        bob.subscribe("values") as values,
    ):
        await alice.wait_for_subscribers("values", timeout=5)
        for payload in PAYLOADS:
            await alice.put("values", payload)
            arrived = (await values.receive(timeout=5)).payload
            print(f"{payload!r} arrives as {arrived!r}")
        print(f"converted back: {msgspec.convert(arrived, Reading)!r}")
        try:
            await alice.put("values", object())
        except UsageError as error:
            print(error)


if __name__ == "__main__":
    asyncio.run(main())
