"""How the asynchronous processes of a bench wait for their parent."""

import asyncio
from collections.abc import Callable

from anabranch.tools.bench.jobs import Parent
from anabranch.tools.bench.measuring import Meter


async def until_drained(meter: Meter, parent: Parent, count: Callable[[], int]) -> None:
    """Returns when the receiver has got everything, or nothing more will come."""
    while not meter.drained(count(), parent.expected):  # noqa: ASYNC110 - set by a thread
        await asyncio.sleep(0.05)


async def until_stopped(parent: Parent) -> None:
    """Returns when the parent doesn't need this process any more."""
    while not parent.stopped.is_set():  # noqa: ASYNC110 - set by a thread
        await asyncio.sleep(0.02)
