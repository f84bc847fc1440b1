"""The proxied links of the testbed, on loopback sockets and on both event loops."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from anabranch.overlay.errors import UsageError
from anabranch.tools.testbed import proxies as proxies_module
from anabranch.tools.testbed.alarms import Alarms
from anabranch.tools.testbed.proxies import Conditions, LinkState, Proxies
from anabranch.tools.testbed.proxy_process import ProxyProcess
from anabranch.transport.loops import run as run_quickest

Run = Callable[[Coroutine[Any, Any, None]], None]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
SILENCE_S = 0.15
"""How long nothing must arrive where nothing may pass; links without delay carry within a millisecond."""


@pytest.fixture(params=[asyncio.run, run_quickest], ids=["asyncio", "quickest"])
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


class Far:
    """The listening side of a link: hands out its connections as they come."""

    def __init__(self) -> None:
        self.address = ""
        self.accepted: asyncio.Queue[Streams] = asyncio.Queue()
        self._writers: list[asyncio.StreamWriter] = []

    def took(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.accepted.put_nowait((reader, writer))

    async def next(self) -> Streams:
        return await asyncio.wait_for(self.accepted.get(), 5)


@contextlib.asynccontextmanager
async def far_side() -> AsyncIterator[Far]:
    far = Far()
    server = await asyncio.start_server(far.took, "127.0.0.1", 0)
    far.address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield far
    finally:
        server.close()
        for writer in far._writers:
            await hang_up(writer)
        await server.wait_closed()


async def dial(address: str) -> Streams:
    return await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def is_silent(reader: asyncio.StreamReader) -> bool:
    try:
        await asyncio.wait_for(reader.read(1), SILENCE_S)
    except TimeoutError:
        return True
    return False


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the proxies tell nobody
            await asyncio.sleep(0.005)


async def carried_s(writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> float:
    """The least time that one of a few messages took."""
    took = []
    for _ in range(5):
        begun = time.monotonic()
        writer.write(b"x" * 64)
        await asyncio.wait_for(reader.readexactly(64), 5)
        took.append(time.monotonic() - begun)
    return min(took)


def test_each_direction_has_its_own_delay(run: Run) -> None:
    async def scene() -> None:
        async with far_side() as far, Proxies() as proxies:
            there, back = Conditions(delay_s=0.060), Conditions(delay_s=0.020)
            address = await proxies.open("a-b", target=far.address, there=there, back=back)
            near_in, near_out = await dial(address)
            far_in, far_out = await far.next()
            assert 0.060 <= await carried_s(near_out, far_in) < 0.070
            assert 0.020 <= await carried_s(far_out, near_in) < 0.030
            proxies.shape("a-b", Conditions(delay_s=0.005))
            assert 0.005 <= await carried_s(near_out, far_in) < 0.015
            assert 0.005 <= await carried_s(far_out, near_in) < 0.015
            await hang_up(near_out)

    run(scene())


def test_a_shorter_delay_does_not_overtake_what_is_on_its_way(run: Run) -> None:
    async def scene() -> None:
        async with far_side() as far, Proxies() as proxies:
            slow = Conditions(delay_s=0.100)
            _, near_out = await dial(await proxies.open("a-b", target=far.address, there=slow))
            far_in, _ = await far.next()
            begun = time.monotonic()
            near_out.write(b"first")
            await until(lambda: proxies.report()[0].in_flight_bytes == 5)
            proxies.shape("a-b", Conditions())
            near_out.write(b"second")
            assert await asyncio.wait_for(far_in.readexactly(11), 5) == b"firstsecond"
            assert time.monotonic() - begun >= 0.100
            await hang_up(near_out)

    run(scene())


def test_jitter_spreads_arrivals_and_keeps_order() -> None:
    async def scene() -> None:
        async with far_side() as far, Proxies(seed=7) as proxies:
            shaky = Conditions(delay_s=0.020, jitter_s=0.020)
            _, near_out = await dial(await proxies.open("a-b", target=far.address, there=shaky))
            far_in, _ = await far.next()
            took = []
            for number in range(20):
                begun = time.monotonic()
                near_out.write(bytes([number]))
                assert await asyncio.wait_for(far_in.readexactly(1), 5) == bytes([number])
                took.append(time.monotonic() - begun)
            assert min(took) < 0.015
            assert max(took) > 0.025
            await hang_up(near_out)

    asyncio.run(scene())


def test_nothing_passes_a_black_hole_and_all_of_it_passes_afterwards(run: Run) -> None:
    async def scene() -> None:
        async with far_side() as far, Proxies() as proxies:
            address = await proxies.open("a-b", target=far.address)
            near_in, near_out = await dial(address)
            far_in, far_out = await far.next()
            await carried_s(near_out, far_in)
            proxies.blackhole("a-b")
            near_out.write(b"held")
            far_out.write(b"back")
            later_in, later_out = await dial(address)
            later_out.write(b"later")
            assert await is_silent(far_in)
            assert await is_silent(near_in)
            assert far.accepted.empty(), "a new connection reached the target"
            assert not later_in.at_eof()
            (report,) = proxies.report()
            assert (report.state, report.connections) == (LinkState.BLACKHOLED, 2)
            proxies.restore("a-b")
            assert await asyncio.wait_for(far_in.readexactly(4), 5) == b"held"
            assert await asyncio.wait_for(near_in.readexactly(4), 5) == b"back"
            later_far_in, _ = await far.next()
            assert await asyncio.wait_for(later_far_in.readexactly(5), 5) == b"later"
            await hang_up(near_out)
            await hang_up(later_out)

    run(scene())


def test_a_black_hole_hides_that_a_connection_ended(run: Run) -> None:
    async def scene() -> None:
        async with far_side() as far, Proxies() as proxies:
            _, near_out = await dial(await proxies.open("a-b", target=far.address))
            far_in, _ = await far.next()
            proxies.blackhole("a-b")
            await hang_up(near_out)
            assert await is_silent(far_in)
            proxies.restore("a-b")
            assert await asyncio.wait_for(far_in.read(), 5) == b""

    run(scene())


def test_a_cut_link_resets_connections_until_it_is_restored(run: Run) -> None:
    async def scene() -> None:
        async with far_side() as far, Proxies() as proxies:
            address = await proxies.open("a-b", target=far.address)
            near_in, near_out = await dial(address)
            far_in, _ = await far.next()
            await carried_s(near_out, far_in)
            proxies.cut("a-b")
            for reader in (near_in, far_in):
                with pytest.raises(ConnectionResetError):
                    await asyncio.wait_for(reader.read(1), 5)
            await hang_up(near_out)
            with pytest.raises(ConnectionError):
                await asyncio.wait_for(_dial_and_read(address), 5)
            assert far.accepted.empty()
            assert proxies.report()[0].connections == 0
            proxies.restore("a-b")
            _, near_out = await dial(address)
            far_in, _ = await far.next()
            await carried_s(near_out, far_in)
            await hang_up(near_out)

    run(scene())


def test_a_reader_that_stops_holds_the_sender_back_and_loses_nothing(run: Run) -> None:
    room = 64 * 1024
    payload = os.urandom(24 * 1024 * 1024)

    async def scene() -> None:
        async with far_side() as far, Proxies(buffer_max_bytes=room) as proxies:
            quick = Conditions(delay_s=0.001)
            _, near_out = await dial(await proxies.open("a-b", target=far.address, there=quick))
            far_in, _ = await far.next()
            near_out.write(payload)
            sending = asyncio.ensure_future(near_out.drain())
            passed = -1
            while passed != (passed := proxies.report()[0].passed_bytes):  # noqa: ASYNC110
                await asyncio.sleep(SILENCE_S)
            assert passed < len(payload), "the proxy takes what nobody reads"
            assert proxies.report()[0].in_flight_bytes <= room + 256 * 1024
            assert not sending.done()
            assert await asyncio.wait_for(far_in.readexactly(len(payload)), 20) == payload
            await sending
            await hang_up(near_out)

    run(scene())


def test_a_half_closed_connection_still_carries_the_answer(run: Run) -> None:
    async def scene() -> None:
        async with far_side() as far, Proxies() as proxies:
            address = await proxies.open("a-b", target=far.address, there=Conditions(delay_s=0.005))
            near_in, near_out = await dial(address)
            near_out.write(b"question")
            near_out.write_eof()
            far_in, far_out = await far.next()
            assert await asyncio.wait_for(far_in.read(), 5) == b"question"
            far_out.write(b"answer")
            await hang_up(far_out)
            assert await asyncio.wait_for(near_in.read(), 5) == b"answer"
            await hang_up(near_out)
            await until(lambda: proxies.report()[0].connections == 0)

    run(scene())


def test_connections_wait_for_a_target_and_end_when_nobody_listens_there() -> None:
    async def scene() -> None:
        async with far_side() as far, Proxies() as proxies:
            _, near_out = await dial(await proxies.open("a-b"))
            near_out.write(b"early")
            await until(lambda: proxies.report()[0].connections == 1)
            assert far.accepted.empty()
            proxies.aim("a-b", far.address)
            far_in, _ = await far.next()
            assert await asyncio.wait_for(far_in.readexactly(5), 5) == b"early"
            await hang_up(near_out)
            proxies.aim("a-b", await _unused_address())
            lost_in, lost_out = await dial(proxies.report()[0].address)
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(lost_in.read(), 5)
            await hang_up(lost_out)

    asyncio.run(scene())


def test_connections_of_a_link_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies_module, "CONNECTIONS_MAX", 2)

    async def scene() -> None:
        async with Proxies() as proxies:
            address = await proxies.open("a-b")
            dialled = []
            for count in (1, 2, 2):
                dialled.append(await dial(address))
                await until(lambda count=count: proxies.report()[0].connections == count)
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(dialled[0][0].read(), 5)
            assert await is_silent(dialled[1][0])
            assert await is_silent(dialled[2][0])
            for _, writer in dialled:
                await hang_up(writer)

    asyncio.run(scene())


def test_what_cannot_be_done_names_itself() -> None:
    async def scene() -> None:
        async with Proxies() as proxies:
            await proxies.open("a-b")
            with pytest.raises(UsageError, match="'a-b' is open already"):
                await proxies.open("a-b")
            with pytest.raises(UsageError, match="no link 'b-c': one of a-b"):
                proxies.cut("b-c")
            with pytest.raises(UsageError, match="name one host and its port"):
                proxies.aim("a-b", "tcp://127.0.0.1:0")
        with pytest.raises(UsageError, match="not open"):
            await Proxies().open("a-b")

    asyncio.run(scene())
    with pytest.raises(UsageError, match="jitter_s = -1"):
        Conditions(jitter_s=-1)


def test_alarms_ring_in_order_and_on_time(run: Run) -> None:
    async def scene() -> None:
        alarms = Alarms()
        rung: list[tuple[int, float]] = []
        done = asyncio.Event()
        begun = time.monotonic()
        dues = [begun + 0.0303, begun + 0.0101, begun + 0.0202]
        for number, due in enumerate(dues):
            alarms.at(due, lambda number=number: rung.append((number, time.monotonic())))
        alarms.at(begun + 0.0404, done.set)
        await asyncio.wait_for(done.wait(), 5)
        assert [number for number, _ in rung] == [1, 2, 0]
        assert all(at >= dues[number] for number, at in rung)
        alarms.at(time.monotonic() + 0.001, lambda: rung.append((9, 0.0)))
        alarms.close()
        alarms.at(time.monotonic(), lambda: rung.append((9, 0.0)))
        await asyncio.sleep(0.02)
        assert len(rung) == 3

    run(scene())


def test_a_process_of_proxies_follows_orders_and_ends_with_its_input(tmp_path: Path) -> None:
    async def scene() -> None:
        async with far_side() as far:
            process = await ProxyProcess.start(tmp_path / "stderr")
            try:
                address = await process.open("a-b", there=Conditions(delay_s=0.010))
                await process.aim("a-b", far.address)
                near_in, near_out = await dial(address)
                far_in, far_out = await far.next()
                assert await carried_s(near_out, far_in) >= 0.010
                before = time.monotonic()
                assert before <= await process.blackhole("a-b") <= time.monotonic()
                far_out.write(b"held")
                assert await is_silent(near_in)
                await process.restore("a-b")
                assert await asyncio.wait_for(near_in.readexactly(4), 5) == b"held"
                report = await process.report()
                assert [(link.link, link.state) for link in report.links] == [("a-b", LinkState.PASSING)]
                assert report.lateness_p50_s is not None
                assert report.lateness_p50_s < 0.005
                with pytest.raises(UsageError, match="no link 'x'"):
                    await process.cut("x")
                await hang_up(near_out)
            finally:
                await process.child.end()
        assert (process.child.code, process.child.was_killed, process.child.wrote()) == (0, False, "")

    asyncio.run(scene())


async def _dial_and_read(address: str) -> bytes:
    reader, writer = await dial(address)
    try:
        return await reader.read()
    finally:
        await hang_up(writer)


async def _unused_address() -> str:
    async with far_side() as gone:
        return gone.address
