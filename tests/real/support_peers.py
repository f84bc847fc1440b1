"""Peers for tests on real sockets: in this process, or in one of their own that answers questions.

Run as a program it is that other process: one JSON object of settings as its argument, see `serve`.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from pathlib import Path

import zmq

from anabranch import Client, Config, Message, Peer, Subscription
from anabranch.transport.loops import run

LOCAL = "tcp://127.0.0.1:0"
WAIT_S = 10.0
"""How long a test waits for what takes milliseconds: only a failure takes this long."""
CHAIN = Config.local(neighbours_target=0)
"""Peers that link to those they were told to join, and to nobody else."""


@contextlib.asynccontextmanager
async def pair(config: Config | None = None) -> AsyncIterator[tuple[Peer, Peer]]:
    """Two peers with a link between them."""
    async with Peer("a", listen=LOCAL, config=config) as a, Peer("b", join=a.addresses, config=config) as b:
        await asyncio.gather(*(peer.wait_for_links(timeout=WAIT_S) for peer in (a, b)))
        yield a, b


@contextlib.asynccontextmanager
async def line(*names: str, config: Config = CHAIN) -> AsyncIterator[list[Peer]]:
    """Peers of which each is linked to the next alone."""
    async with contextlib.AsyncExitStack() as stack:
        peers: list[Peer] = []
        for name in names:
            join = peers[-1].addresses if peers else ()
            peers.append(await stack.enter_async_context(Peer(name, listen=LOCAL, join=join, config=config)))
        for peer in peers:
            await peer.wait_for_peers(*(set(names) - {str(peer.name)}), timeout=WAIT_S)
        yield peers


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


async def until(condition: Callable[[], object], what: str, timeout: float = WAIT_S) -> None:
    """Poll what no event tells: counters and tables."""
    ends = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < ends, f"not within {timeout} s: {what}"
        await asyncio.sleep(0.005)


async def take(subscription: Subscription, count: int) -> list[Message]:
    """The next so many messages."""
    return [await subscription.receive(timeout=WAIT_S) for _ in range(count)]


def dropped(peer: Peer) -> dict[str, int]:
    """What a peer dropped, by reason."""
    return {
        name.removeprefix("dropped."): count
        for name, count in peer.counters.items()
        if name.startswith("dropped.") and count
    }


def neighbours(peer: Peer) -> list[str]:
    """Whom a peer is linked to, as its own report says."""
    links = peer.report()["links"]
    assert isinstance(links, list)
    return [link["peer"] for link in links]


def open_descriptors() -> int:
    """How many files and sockets this process holds."""
    return len(list(Path("/proc/self/fd").iterdir()))


def resident_bytes(pid: int | str = "self") -> int:
    """How much memory a process occupies."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def troubles(logs: list[MutableMapping[str, object]]) -> list[MutableMapping[str, object]]:
    """Captured log entries that tell of an exception, or of worse than a warning."""
    return [
        entry
        for entry in logs
        if entry.get("exc_info") or entry.get("log_level") in ("error", "critical", "exception")
    ]


@contextlib.contextmanager
def dealer(address: str) -> Iterator[zmq.SyncSocket]:
    """A plain ZeroMQ socket connected to an address."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as sender:
        sender.setsockopt(zmq.LINGER, 0)
        sender.setsockopt(zmq.SNDTIMEO, 2000)
        sender.connect(address)
        yield sender
        context.destroy(linger=0)


def is_closed(mute: socket.socket) -> bool:
    """Whether the other side has hung up."""
    try:
        while True:
            if not mute.recv(4096):
                return True
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


class Child:
    """A peer in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.addresses: list[str] = []
        self._process = process

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    async def ask(self, question: str = "count") -> dict[str, int]:
        """Its answer: messages `received`, sequences `missing` and `disordered`, and its drops."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(question.encode() + b"\n")
        async with asyncio.timeout(WAIT_S):
            line = await stdout.readline()
        assert line, "the child has ended"
        answer: dict[str, int] = json.loads(line)
        return answer

    async def until_received(self, count: int) -> dict[str, int]:
        """Its answer once it has received that many."""
        answer = await self.ask()
        moved_at = time.monotonic()
        while answer["received"] < count:
            assert time.monotonic() < moved_at + 3, f"{count} not received: {answer}"
            await asyncio.sleep(0.02)
            before, answer = answer, await self.ask()
            if answer != before:
                moved_at = time.monotonic()
        return answer

    def stop(self) -> None:
        """Let it stand still."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """End it without a farewell."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def end(self) -> None:
        """Let it close its peer; killed when that takes too long."""
        stdin = self._process.stdin
        assert stdin is not None
        self._process.send_signal(signal.SIGCONT)
        stdin.close()
        try:
            code = await asyncio.wait_for(self._process.wait(), WAIT_S)
        except TimeoutError:
            await self.kill()
            raise
        assert code == 0, f"the child ended with {code}"


@contextlib.asynccontextmanager
async def child(name: str, **settings: object) -> AsyncIterator[Child]:
    """A peer in another process, from when it stands to when the block ends."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, json.dumps({"name": name, **settings})),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    started = Child(process)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(WAIT_S):
            line = await process.stdout.readline()
        started.addresses = json.loads(line)["addresses"]
        yield started
        if process.returncode is None:
            await started.end()
    finally:
        if process.returncode is None:
            await started.kill()
        process._transport.close()  # type: ignore[attr-defined]  # frees the pipes now, not at collection


async def serve(settings: dict[str, object]) -> None:
    """Be a peer: `name`, `listen`, `join`, `role`, `config`; `subscribe` with `overflow`, `queue_max`,
    and `pause_s` after every `pause_every` messages; `publish` to a topic `every_s`. A line on stdin is
    answered with counts."""
    config = Config.local(**settings.get("config", {}))  # type: ignore[arg-type]
    name, join = str(settings["name"]), settings.get("join", ())
    if settings.get("role") == "client":
        peer: Peer = Client(name, join=join, config=config)  # type: ignore[arg-type]
    else:
        peer = Peer(name, listen=settings.get("listen", ()), join=join, config=config)  # type: ignore[arg-type]
    tally = Tally()
    async with peer, asyncio.TaskGroup() as tasks:
        if "subscribe" in settings:
            subscription = peer.subscribe(
                str(settings["subscribe"]),
                overflow=str(settings.get("overflow", "drop_oldest")),
                queue_max=int(settings.get("queue_max", 65536)),  # type: ignore[call-overload]
            )
            pauses = float(settings.get("pause_s", 0)), int(settings.get("pause_every", 1))  # type: ignore[arg-type, call-overload]
            tasks.create_task(tally.read(subscription, *pauses))
        if "publish" in settings:
            tasks.create_task(_publish(peer, str(settings["publish"]), float(settings["every_s"])))  # type: ignore[arg-type]
        print(json.dumps({"addresses": peer.addresses}), flush=True)
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
        )
        while await lines.readline():
            answer = {"received": tally.received, "missing": tally.missing, "disordered": tally.disordered}
            print(json.dumps(answer | dropped(peer) | {"delivered": peer.counters["delivered"]}), flush=True)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


class Tally:
    """Counts what arrives, and what the sequences say of it."""

    def __init__(self) -> None:
        self.received = self.missing = self.disordered = 0
        self._expected: dict[tuple[str, int], int] = {}

    async def read(self, subscription: Subscription, pause_s: float, pause_every: int) -> None:
        """All messages of a subscription."""
        async for message in subscription:
            self.note(message)
            if pause_s and self.received % pause_every == 0:
                await asyncio.sleep(pause_s)

    def note(self, message: Message) -> None:
        """One message."""
        self.received += 1
        stream = (message.origin, message.publisher)
        expected = self._expected.get(stream, message.sequence)
        self.missing += max(0, message.sequence - expected)
        self.disordered += message.sequence < expected
        self._expected[stream] = message.sequence + 1


async def _publish(peer: Peer, topic: str, every_s: float) -> None:
    publisher = await peer.publisher(topic)
    while True:
        await publisher.put(b"x")
        await asyncio.sleep(every_s)


if __name__ == "__main__":
    run(serve(json.loads(sys.argv[1])))
