"""Five peer processes on loopback, and what is done to them: started, paused, killed, asked, ended.

Keeps a diary of the harm done, by which `chaos_judge.py` judges what the peers report.
"""

import asyncio
import contextlib
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

import msgspec
from chaos_messages import Event, FlowReport, Open, Order, Ready, Report, Violation

from anabranch.tools.testbed.children import Child

NAMES = ("p1", "p2", "p3", "p4", "p5")
PROGRAM = Path(__file__).with_name("chaos_peer.py")
READY_TIMEOUT_S = 15.0
ANSWER_TIMEOUT_S = 10.0
POLL_S = 0.05
NOTICED_S = 0.6
"""`suspect_after_s`: a shorter pause must not even be noticed."""
_PORTS = range(20_000, 32_000)
"""Below those the system hands out by itself: a port must still be free when its peer returns."""


class Harm(msgspec.Struct):
    """Something that was done to a peer."""

    kind: str
    """`kill`, `pause`, or `nap`: a pause too short to be noticed."""
    victim: str
    start: float
    end: float = math.inf
    """When the peer ran again."""
    back: float = math.inf
    """When it was seen to be back in all flows."""


class Peered(msgspec.Struct):
    """One process, and what it told."""

    child: Child
    incarnation: int
    reader: asyncio.Task[None]
    ready: asyncio.Event
    report: Report | None = None
    answered: asyncio.Event | None = None
    paused: bool = False


class Mesh:
    """`edges` are the links to lay; None stands for whatever links the peers make themselves."""

    def __init__(
        self,
        directory: Path,
        edges: Iterable[tuple[str, str]] | None = None,
        *,
        seed: int = 0,
        rate: float = 200.0,
        payload_bytes: int = 64,
    ) -> None:
        self.edges = None if edges is None else [tuple(sorted(edge)) for edge in edges]
        self.harms: list[Harm] = []
        self.violations: list[str] = []
        self.peers: dict[str, Peered] = {}
        self.exits: list[tuple[str, int, int | None, float]] = []
        """(peer, incarnation, exit code, seconds it took) of processes that were told to finish."""
        self.pids: list[int] = []
        self.payload_bytes = dict.fromkeys(NAMES, payload_bytes)
        self.rates = dict.fromkeys(NAMES, rate)
        self.directory = directory
        self.incarnations = dict.fromkeys(NAMES, 0)
        self._addresses = {name: f"tcp://127.0.0.1:{port}" for name, port in _free_ports(seed)}

    async def __aenter__(self) -> Self:
        try:
            await asyncio.gather(*(self.start(name) for name in NAMES))
        except BaseException:
            await self._end_all()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end_all()

    def open_files(self, name: str) -> int:
        """How many descriptors a peer's process holds."""
        return len(list(Path(f"/proc/{self.peers[name].child.pid}/fd").iterdir()))

    def is_cut(self, source: str, receiver: str, victim: str) -> bool:
        """Whether no way is left between two peers without a third."""
        reached = {source}
        fresh = [source]
        while fresh:
            fresh = [
                other
                for name in fresh
                for other in self.neighbours(name)
                if other != victim and other not in reached
            ]
            reached.update(fresh)
        return receiver not in reached

    def neighbours(self, name: str) -> list[str]:
        """Who has a laid link to this peer; everybody where peers make links themselves."""
        if self.edges is None:
            return [other for other in NAMES if other != name]
        return [next(end for end in edge if end != name) for edge in self.edges if name in edge]

    # Harm

    async def start(self, name: str) -> None:
        """A new incarnation of a peer, ready."""
        peered = await self.spawn(name)
        async with asyncio.timeout(READY_TIMEOUT_S):
            await peered.ready.wait()
        assert peered.child.code is None, f"{name} ended: {peered.child.wrote()}"

    async def spawn(self, name: str) -> Peered:
        """A new incarnation of a peer, not ready yet."""
        self.incarnations[name] += 1
        incarnation = self.incarnations[name]
        stderr_path = self.directory / f"{name}-{incarnation}.stderr"
        with stderr_path.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-W", "always::ResourceWarning", str(PROGRAM)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                limit=8 * 1024 * 1024,
                start_new_session=True,
            )
        child = Child(name, process, stderr_path)
        self.pids.append(child.pid)
        ready = asyncio.Event()
        peered = self.peers[name] = Peered(child, incarnation, asyncio.create_task(asyncio.sleep(0)), ready)
        peered.reader = asyncio.create_task(self._read(peered))
        child.tell(
            Open(
                name=name,
                incarnation=incarnation,
                listen=self._addresses[name],
                join=[self._addresses[other] for other in self.neighbours(name)],
                neighbours_target=4 if self.edges is None else 0,
                rate=self.rates[name],
                payload_bytes=self.payload_bytes[name],
                log_dir=str(self.directory),
            )
        )
        return peered

    async def kill(self, name: str) -> Harm:
        """SIGKILL; `restart` ends the harm."""
        peered = self.peers.pop(name)
        harm = Harm("kill", name, time.monotonic())
        self.harms.append(harm)
        peered.child.kill()
        await peered.child.end()
        await peered.reader
        return harm

    async def restart(self, harm: Harm) -> None:
        """The victim comes back."""
        await self.start(harm.victim)
        harm.end = time.monotonic()

    async def pause(self, name: str, seconds: float) -> Harm:
        """SIGSTOP for a while; the harm is over with SIGCONT."""
        peered = self.peers[name]
        harm = Harm("nap" if seconds < NOTICED_S else "pause", name, time.monotonic())
        self.harms.append(harm)
        os.kill(peered.child.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(peered.child.pid, signal.SIGCONT)
        harm.end = time.monotonic()
        return harm

    # Asking

    def hush(self) -> None:
        """Publish no more."""
        for peered in self.peers.values():
            peered.child.tell(Order("hush"))

    async def reports(self) -> dict[str, Report]:
        """What every running peer has heard by now."""
        return dict(await asyncio.gather(*(self._ask(name) for name in list(self.peers))))

    async def until_back(self, harm: Harm, timeout_s: float) -> None:
        """Until a victim that runs again, and everybody else, is in all flows again."""
        await self.until_flowing(harm.end, timeout_s)
        harm.back = time.monotonic()

    async def until_flowing(self, since: float, timeout_s: float) -> None:
        """Until every running peer has heard of every other something put since then."""
        deadline = time.monotonic() + timeout_s
        while missing := self._not_flowing(await self.reports(), since):
            assert time.monotonic() < deadline, (
                f"after {timeout_s} s still not heard: {self._picture(missing)}"
            )
            await asyncio.sleep(POLL_S)

    async def until_linked(self, timeout_s: float) -> None:
        """Until every running peer has all the links it should have."""
        deadline = time.monotonic() + timeout_s
        while missing := [
            (name, other)
            for name, report in (await self.reports()).items()
            for other in self.neighbours(name)
            if report.links.get(other) != "up"
        ]:
            assert time.monotonic() < deadline, f"links not up: {self._picture(missing)}"
            await asyncio.sleep(POLL_S)

    async def until_complete(self, timeout_s: float) -> dict[str, Report]:
        """After `hush`: until every peer has heard the last publication of every other; the reports."""
        deadline = time.monotonic() + timeout_s
        while True:
            reports = await self.reports()
            missing = [
                (source, receiver)
                for source, receiver in self._pairs()
                if (flow := self.flow(reports, source, receiver)) is None
                or flow.last + 1 != reports[source].published
            ]
            if not missing:
                return reports
            assert time.monotonic() < deadline, f"the last did not come: {self._picture(missing)}"
            await asyncio.sleep(POLL_S)

    def flow(self, reports: dict[str, Report], source: str, receiver: str) -> FlowReport | None:
        """What a receiver heard of the present incarnation of a source; None if nothing."""
        incarnation = self.peers[source].incarnation
        return next(
            (
                flow
                for flow in reports[receiver].flows
                if flow.source == source and flow.incarnation == incarnation
            ),
            None,
        )

    async def finish(self) -> None:
        """End every peer in order."""
        await asyncio.gather(*(self._finish(name) for name in list(self.peers)))

    # Inside

    def _pairs(self) -> list[tuple[str, str]]:
        return [(source, receiver) for source in self.peers for receiver in self.peers]

    def _not_flowing(self, reports: dict[str, Report], since: float) -> list[tuple[str, str]]:
        return [
            (source, receiver)
            for source, receiver in self._pairs()
            if (flow := self.flow(reports, source, receiver)) is None or flow.last_put_at < since
        ]

    def _picture(self, missing: list[tuple[str, str]]) -> str:
        links = {name: peered.report.links for name, peered in self.peers.items() if peered.report}
        return f"{missing}; links {links}; harms {self.harms[-3:]}"

    async def _ask(self, name: str) -> tuple[str, Report]:
        peered = self.peers[name]
        peered.answered = asyncio.Event()
        peered.child.tell(Order("tell"))
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await peered.answered.wait()
        except TimeoutError:
            raise AssertionError(f"{name} does not answer: {peered.child.wrote()}") from None
        if peered.child.code is not None or peered.report is None:
            raise AssertionError(f"{name} ended with {peered.child.code}: {peered.child.wrote()}")
        return name, peered.report

    async def _read(self, peered: Peered) -> None:
        with contextlib.suppress(msgspec.DecodeError):  # a killed process leaves half a line
            async for line in peered.child.events():
                event = msgspec.json.decode(line, type=Event)
                if isinstance(event, Ready):
                    peered.ready.set()
                elif isinstance(event, Violation):
                    self.violations.append(f"{peered.child.name}: {event.text}")
                else:
                    peered.report = event
                    assert peered.answered is not None
                    peered.answered.set()
        await peered.child.wait()
        peered.ready.set()
        if peered.answered is not None:
            peered.answered.set()

    async def _finish(self, name: str) -> None:
        peered = self.peers.pop(name)
        began = time.monotonic()
        peered.child.tell(Order("finish"))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(peered.child.wait(), 8)
        self.exits.append((name, peered.incarnation, peered.child.code, time.monotonic() - began))
        await peered.child.end()
        await peered.reader

    async def _end_all(self) -> None:
        for peered in self.peers.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(peered.child.pid, signal.SIGCONT)
            peered.child.kill()
            await peered.child.end()
            await peered.reader
        self.peers.clear()


def _free_ports(seed: int) -> list[tuple[str, int]]:
    rng = Random(f"{os.getpid()} {seed}")
    found: list[int] = []
    while len(found) < len(NAMES):
        port = rng.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return list(zip(NAMES, found, strict=True))
