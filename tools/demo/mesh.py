"""Starts the processes of the demonstration, lays the links, plays what happens, and ends everything."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from anabranch.overlay.errors import AnabranchError
from anabranch.tools.demo import peer_process
from anabranch.tools.demo.board import Board, missing
from anabranch.tools.demo.messages import Event, Finish, Hush, Open, Order, Publish
from anabranch.tools.demo.scenario import (
    DEADLINE_S,
    DEGRADED_S,
    FLOWS,
    LINKS,
    PEERS,
    RATE,
    Step,
    Trouble,
    timeline,
)
from anabranch.tools.testbed.children import Child
from anabranch.tools.testbed.proxies import Conditions
from anabranch.tools.testbed.proxy_process import Answer, ProxyProcess

SET_UP_TIMEOUT_S = 20.0
ANSWER_TIMEOUT_S = 5.0
DRAIN_S = 0.3
"""After the last message was put: the slowest path and the hold for reordering, twice."""
END_TIMEOUT_S = 6.0


class DemoError(AnabranchError):
    """The demonstration cannot go on."""


class Outcome(msgspec.Struct):
    """What remains to be told of the processes of a run."""

    pids: dict[str, int]
    emulation: Answer | None = None
    """How the links did, asked at the end."""
    wrote: list[str] = []
    """The files of processes that wrote something to stderr."""


class Mesh:
    """One run. Afterwards no process is left, however it ended."""

    def __init__(self, board: Board, log_dir: Path, seconds: float) -> None:
        self.outcome = Outcome({})
        self._board = board
        self._log_dir = log_dir
        self._seconds = seconds
        self._peers: dict[str, Child] = {}
        self._proxies: ProxyProcess | None = None
        self._watching: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._broken = asyncio.Event()
        """There are no links any more."""
        self._ending = False

    async def run(self) -> None:
        """Set up, play, end. What goes wrong is noted on the board."""
        try:
            await self._set_up()
            await self._play()
            await self._wind_down()
        except AnabranchError as error:
            self._board.fail(str(error))
        finally:
            self._ending = True
            self._board.phase = "ending"
            await self._end_all()

    async def _set_up(self) -> None:
        board = self._board
        board.phase = "starting five peers and ten links"
        board.say(f"starting {len(PEERS)} peers and {len(LINKS)} links, each peer a process of its own")
        self._proxies = await ProxyProcess.start(self._log_dir / "proxies.stderr")
        self._watch(self._proxies.child, self._watch_proxies(self._proxies.child))
        for peer in PEERS:
            child = await Child.start(peer, peer_process.__name__, self._log_dir / f"{peer}.stderr")
            self._peers[peer] = child
            self._watch(child, self._listen(child))
        addresses = {}
        for each in LINKS:
            conditions = Conditions(delay_s=each.delay_s)
            addresses[each] = await self._proxies.open(each.name, there=conditions)
        for peer in PEERS:
            self._tell(peer, self._job(peer, [addresses[each] for each in LINKS if each.second == peer]))
        board.phase = "waiting for the peers to listen"
        await self._until(lambda: len(board.addresses) == len(PEERS), SET_UP_TIMEOUT_S)
        for each in LINKS:
            await self._proxies.aim(each.name, board.addresses[each.first])
        board.phase = "waiting for links"
        await self._until(lambda: board.links_up() == len(LINKS), SET_UP_TIMEOUT_S)
        board.phase = "waiting for subscribers"
        await self._until(lambda: board.matched >= {flow.topic for flow in FLOWS}, SET_UP_TIMEOUT_S)
        board.say(f"all links are up after {time.monotonic() - board.begun_at:.1f} s", "good")

    async def _play(self) -> None:
        board = self._board
        board.phase = "running"
        board.started_at = time.monotonic() + 0.05
        for peer in PEERS:
            self._tell(peer, Publish(at=board.started_at))
        rate = f"3 × {RATE:.0f} messages/s for 6 subscribers"  # noqa: RUF001 - times
        board.say(f"publishing {rate}, deadline {DEADLINE_S * 1e3:.0f} ms")
        for step in timeline(self._seconds):
            await self._sleep_until(board.started_at + step.at_s)
            at = await self._do(step)
            board.happened(step, at)
        await self._sleep_until(board.started_at + self._seconds)

    async def _do(self, step: Step) -> float:
        assert self._proxies is not None
        if step.trouble is Trouble.DEGRADED:
            return await self._proxies.shape(step.link.name, Conditions(delay_s=DEGRADED_S))
        if step.trouble is Trouble.DEAD:
            return await self._proxies.blackhole(step.link.name)
        return await self._proxies.restore(step.link.name)

    async def _wind_down(self) -> None:
        board = self._board
        board.phase = "counting what arrived"
        for peer in PEERS:
            self._tell(peer, Hush())
        await self._answered(board.hushed)
        await asyncio.sleep(DRAIN_S)
        self._ending = True
        for peer in PEERS:
            self._tell(peer, Finish())
        await self._answered(board.finished)
        board.verdict()
        assert self._proxies is not None
        self.outcome.emulation = await self._proxies.report()

    async def _end_all(self) -> None:
        children = list(self._peers.values())
        await asyncio.gather(*(child.end(END_TIMEOUT_S) for child in children))
        if self._proxies is not None:
            children.append(self._proxies.child)
            await self._proxies.child.end(END_TIMEOUT_S)
        for task in self._watching:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for child in children:
            if child.was_killed:
                self._board.fail(f"{child.name} did not end by itself within {END_TIMEOUT_S:.0f} s")
            elif child.code != 0 and _obituary(child) not in self._board.problems:
                self._board.fail(_obituary(child))
            if child.wrote():
                self.outcome.wrote.append(str(child.stderr_path))

    def _watch(self, child: Child, watching: Coroutine[Any, Any, None]) -> None:
        self.outcome.pids[child.name] = child.pid
        self._watching.append(asyncio.create_task(watching))

    async def _watch_proxies(self, child: Child) -> None:
        await child.wait()
        self._broken.set()

    async def _listen(self, child: Child) -> None:
        async for line in child.events():
            event: Event = msgspec.json.decode(line, type=Event)
            self._board.take(child.name, event)
            self._changed.set()
        await child.wait()
        if not self._ending:
            self._board.lost_peer(child.name, _obituary(child))
            self._changed.set()

    async def _until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if self._board.gone and self._board.started_at is None:
                raise DemoError("the mesh cannot be set up without all peers")
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), deadline - time.monotonic())
            except TimeoutError:
                raise DemoError(
                    f"the mesh is not ready after {timeout_s:.0f} s: {missing(self._board)}"
                ) from None

    async def _answered(self, answered: set[str]) -> None:
        """Wait until all peers that are left have answered, but not for ever."""
        waited_for = set(PEERS)
        with contextlib.suppress(DemoError):
            await self._until(lambda: answered | self._board.gone >= waited_for, ANSWER_TIMEOUT_S)
        for peer in sorted(waited_for - answered - self._board.gone):
            self._board.lost_peer(peer, f"the process {peer} does not answer")

    async def _sleep_until(self, at: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._broken.wait(), max(0.0, at - time.monotonic()))
            assert self._proxies is not None
            raise DemoError(_obituary(self._proxies.child))

    def _job(self, peer: str, join: list[str]) -> Open:
        topics = [flow.topic for flow in FLOWS if flow.source == peer]
        return Open(
            name=peer,
            join=join,
            log_dir=str(self._log_dir),
            publish={topic: topics.count(topic) for topic in topics},
            subscribe=[flow.topic for flow in FLOWS if flow.destination == peer],
            rate=RATE,
            deadline_s=DEADLINE_S,
        )

    def _tell(self, peer: str, order: Order) -> None:
        self._peers[peer].tell(order)


def _obituary(child: Child) -> str:
    wrote = child.wrote()
    said = f"; it wrote:\n{wrote}" if wrote else "; it wrote nothing to stderr"
    return f"the process {child.name} ended with code {child.code}{said}"
