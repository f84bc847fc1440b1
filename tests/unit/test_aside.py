"""Replies past the mesh go to addresses that others name: whatever those are, sending them does no harm."""

import asyncio

import pytest

from anabranch.overlay.asking import Protocol
from anabranch.transport.aside import DATAGRAM_MAX_BYTES, Aside

BAD = (
    "",
    "udp://",
    "udp://:",
    "udp://localhost:7",
    "udp://127.0.0.1:",
    "udp://127.0.0.1:99999",
    "udp://127.0.0.1:٣x",
    "udp://" + "x" * 300 + ":7",
    "tcp://",
    "tcp://*:0",
    "tcp://127.0.0.1:0",
    "tcp://" + "x" * 300 + ":7",
    "tcp://127.0.0.1:99999",
    "ipc://\x00",
    "inproc://x",
)


@pytest.mark.parametrize("address", BAD)
def test_an_address_that_makes_no_sense_is_told_by_a_false(address: str) -> None:
    async def main() -> list[bool]:
        aside = Aside(lambda _: None)
        try:
            sent = [aside.send(Protocol.DATAGRAM, address, b"x")]
            if not address.startswith("udp"):
                sent.append(aside.send(Protocol.DIRECT, address, b"x"))
            return sent
        finally:
            await aside.close()

    assert not any(asyncio.run(main()))


def test_what_fits_into_no_datagram_is_not_sent() -> None:
    assert not Aside(lambda _: None).send(
        Protocol.DATAGRAM, "udp://127.0.0.1:9", b"x" * (DATAGRAM_MAX_BYTES + 1)
    )
