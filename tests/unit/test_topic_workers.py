"""Processes for searches: they end when their peer is gone, in the middle of an endless search too."""

import asyncio
from pathlib import Path

import pytest
from support_topics import TopicRealm

from anabranch.overlay.counters import Counters
from anabranch.security.synopses import Descriptors
from anabranch.transport.topics import worker as workers
from anabranch.transport.topics.query import FoundRows, Query
from anabranch.transport.topics.store import FILE_NAME, TopicStore
from anabranch.transport.topics.worker import Job

ENDLESS = Query("count(//*[count(//*[count(//*)])])", "xpath")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A store with a document that takes minutes to be searched."""
    realm, store = TopicRealm(tmp_path / "ca"), TopicStore(tmp_path / FILE_NAME)
    topic = realm.topic("owner", "air/one", descriptors=Descriptors(xml="<r>" + "<a/>" * 4000 + "</r>"))
    store.keep([(topic, [realm.der("owner"), realm.der("tdn")])])
    store.close()
    return tmp_path


def test_an_endless_search_ends_with_nobody_left_to_end_it(directory: Path) -> None:
    """Checked by removing the timer in `_serve`: the process goes on for minutes."""

    async def scene() -> None:
        worker = workers._Worker(directory / FILE_NAME, Counters())
        await worker.warm()
        process = worker._process
        assert process is not None
        content = workers._encoder.encode(Job(ENDLESS, "seeker", True, 0.0))
        worker._writer.write(workers._LENGTH.pack(len(content)) + content)
        await worker._writer.drain()
        worker._writer.transport.abort()  # as when the peer was killed
        try:
            await asyncio.get_running_loop().run_in_executor(None, process.wait, 20)
        finally:
            await worker.close()

    asyncio.run(scene())


def test_a_search_that_takes_too_long_is_killed_and_the_next_one_answered(directory: Path) -> None:
    """Checked by leaving the process to itself in `_ask`: the next search is not answered."""

    async def scene() -> None:
        counters = Counters()
        worker = workers._Worker(directory / FILE_NAME, counters)
        found = await worker.run(Job(ENDLESS, "seeker", True, 0.0))
        assert found is not None
        assert (found.rows, found.is_late, counters["queries_killed"]) == ([], True, 1)
        again = await worker.run(Job(Query("air"), "seeker", True, 0.0))
        assert again is not None
        assert len(again.rows) == 1
        await worker.close()

    asyncio.run(scene())


def test_askers_take_turns(directory: Path) -> None:
    """Checked with one queue for all: the modest one comes last."""

    async def scene() -> None:
        worker = workers._Worker(directory / FILE_NAME, Counters())
        answered: list[str] = []

        async def ask(job: Job) -> FoundRows:
            answered.append(job.asker)
            await asyncio.sleep(0)
            return FoundRows([])

        worker._ask = ask  # type: ignore[method-assign]
        askers = ["greedy"] * (workers.WAITING_PER_ASKER_MAX + 2) + ["modest"]
        found = await asyncio.gather(*(worker.run(Job(ENDLESS, each, False, 0.0)) for each in askers))
        assert answered[1] == "modest"
        assert found.count(None) == 2, "more of one asker do not wait"
        assert answered.count("greedy") == workers.WAITING_PER_ASKER_MAX

    asyncio.run(scene())
