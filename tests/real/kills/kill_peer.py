"""One of the processes that are killed: publishes persistently, reads durably, and notes both in a file.

Arguments: one JSON object. Lines of the notes: `start LIFE`, `put NUMBER LIFE` once a put returned,
`got ORIGIN SEQUENCE NUMBER LIFE` with a message in hand, `accepted ORIGIN SEQUENCE` once accepting returned.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from anabranch import AssuredPublisher, Config, Peer
from anabranch.transport.durable import DurableMessage
from anabranch.transport.loops import run

CHUNK = 25
"""Puts at a time: they share a write to the disk."""
PAUSE_S = 0.03
ACCEPT_EVERY = 40


class Notes:
    """Appended to a file line by line: what is written survives the death of the process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.lives = 0
        self.put = 0
        for line in path.read_text().splitlines():
            word, *rest = line.split()
            if word == "start":
                self.lives += 1
            elif word == "put":
                self.put = int(rest[0]) + 1

    def add(self, *lines: str) -> None:
        os.write(self._file, "".join(f"{line}\n" for line in lines).encode())


async def publish(peer: Peer, notes: Notes, count: int, receivers: list[str]) -> None:
    publisher = await peer.publisher(f"feed/{peer.name}", guarantee="persistent")
    assert isinstance(publisher, AssuredPublisher)
    topic = f"feed/{peer.name}"
    if not notes.put:  # before the first message of all, everybody must be known
        await peer.wait_for_subscribers(topic, len(receivers))
        assert set(publisher.receivers) == set(receivers)
    life = notes.lives
    while notes.put < count:
        chunk = range(notes.put, min(count, notes.put + CHUNK))
        await asyncio.gather(*(publisher.put([number, life]) for number in chunk))
        notes.add(*(f"put {number} {life}" for number in chunk))
        notes.put = chunk.stop
        await asyncio.sleep(PAUSE_S)
    notes.add("done")


async def read(peer: Peer, notes: Notes, pattern: str) -> None:
    async with peer.subscribe(
        pattern, durable=pattern.replace("/", "-"), auto_accept=False, queue_max=500
    ) as inbox:
        last: dict[str, DurableMessage] = {}
        unaccepted = 0
        while True:
            try:
                message = await inbox.receive(timeout=0.05)
            except TimeoutError:
                unaccepted = ACCEPT_EVERY if last else 0
            else:
                assert isinstance(message, DurableMessage)
                number, life = message.payload  # type: ignore[misc]
                notes.add(f"got {message.origin} {message.sequence} {number} {life}")
                last[message.origin] = message
                unaccepted += 1
            if unaccepted >= ACCEPT_EVERY:
                for each in last.values():
                    await each.accept()
                    notes.add(f"accepted {each.origin} {each.sequence}")
                last, unaccepted = {}, 0


async def main(settings: dict[str, object]) -> None:
    name = str(settings["name"])
    notes = Notes(Path(str(settings["notes"])))
    notes.add(f"start {notes.lives}")
    config = Config.local(neighbours_target=int(settings["neighbours"]))  # type: ignore[call-overload]
    listen, join = str(settings["listen"]), list(settings["join"])  # type: ignore[call-overload]
    async with (
        Peer(name, listen=listen, join=join, config=config, store_dir=str(settings["store"])) as peer,
        asyncio.TaskGroup() as tasks,
    ):
        for pattern in settings["patterns"]:  # type: ignore[attr-defined]
            tasks.create_task(read(peer, notes, pattern))
        receivers = list(settings["receivers"])  # type: ignore[call-overload]
        tasks.create_task(publish(peer, notes, int(settings["count"]), receivers))  # type: ignore[call-overload]


if __name__ == "__main__":
    run(main(json.loads(sys.argv[1])))
