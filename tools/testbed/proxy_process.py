"""Proxies in a process of their own, so that carrying bytes does not disturb the peers.

`ProxyProcess` is the handle for who wants the links; it runs this module with `python -m`.
"""

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec

from anabranch.overlay.errors import AnabranchError, UsageError
from anabranch.tools.testbed.children import Child
from anabranch.tools.testbed.parent import OrphanedError, Parent
from anabranch.tools.testbed.proxies import Conditions, LinkReport, Proxies
from anabranch.transport.loops import run

ANSWER_TIMEOUT_S = 10.0


class Order(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the process is asked to do: one call of `Proxies`."""

    call: str
    link: str = ""
    target: str | None = None
    there: Conditions | None = None
    back: Conditions | None = None


class Answer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One for each order, in their order."""

    at: float
    """`time.monotonic` when it was done; the same clock in all processes of a machine."""
    address: str = ""
    links: list[LinkReport] = []
    lateness_p50_s: float | None = None
    lateness_p99_s: float | None = None
    error: str = ""


class ProxyProcess:
    """The calls of `Proxies` on links in another process; most return when it was done."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self._events = child.events()
        self._turn = asyncio.Lock()

    @classmethod
    async def start(cls, stderr_path: Path) -> "ProxyProcess":
        """Start it; `end()` its child in any case."""
        return cls(await Child.start("proxies", __name__, stderr_path))

    async def open(
        self,
        link: str,
        *,
        target: str | None = None,
        there: Conditions | None = None,
        back: Conditions | None = None,
    ) -> str:
        """The address to dial."""
        return (await self._ask(call="open", link=link, target=target, there=there, back=back)).address

    async def aim(self, link: str, target: str) -> float:
        """See `Proxies.aim`."""
        return (await self._ask(call="aim", link=link, target=target)).at

    async def shape(self, link: str, there: Conditions, back: Conditions | None = None) -> float:
        """See `Proxies.shape`."""
        return (await self._ask(call="shape", link=link, there=there, back=back)).at

    async def blackhole(self, link: str) -> float:
        """See `Proxies.blackhole`."""
        return (await self._ask(call="blackhole", link=link)).at

    async def cut(self, link: str) -> float:
        """See `Proxies.cut`."""
        return (await self._ask(call="cut", link=link)).at

    async def restore(self, link: str) -> float:
        """See `Proxies.restore`."""
        return (await self._ask(call="restore", link=link)).at

    async def report(self) -> Answer:
        """All links, and how late chunks left."""
        return await self._ask(call="report")

    async def _ask(self, **fields: Any) -> Answer:
        async with self._turn:
            self.child.tell(Order(**fields))
            try:
                line = await asyncio.wait_for(anext(self._events), ANSWER_TIMEOUT_S)
            except (StopAsyncIteration, TimeoutError) as failure:
                what = "did not answer" if isinstance(failure, TimeoutError) else "has ended"
                raise AnabranchError(f"the process of the proxies {what}: {self.child.wrote()}") from None
        answer = msgspec.json.decode(line, type=Answer)
        if answer.error:
            raise UsageError(answer.error)
        return answer


async def serve() -> None:
    """Follow orders until there are no more."""
    async with Parent() as parent, Proxies() as proxies:
        while True:
            try:
                order = await parent.order(Order)
            except OrphanedError:
                return
            try:
                answer = await _follow(proxies, order)
            except UsageError as error:
                answer = Answer(at=time.monotonic(), error=str(error))
            parent.tell(answer)


async def _follow(proxies: Proxies, order: Order) -> Answer:
    link, there = order.link, order.there or Conditions()
    if order.call == "open":
        address = await proxies.open(link, target=order.target, there=there, back=order.back)
        return Answer(at=time.monotonic(), address=address)
    if order.call == "aim":
        proxies.aim(link, order.target or "")
    elif order.call == "shape":
        proxies.shape(link, there, order.back)
    elif order.call == "blackhole":
        proxies.blackhole(link)
    elif order.call == "cut":
        proxies.cut(link)
    elif order.call == "restore":
        proxies.restore(link)
    elif order.call == "report":
        lateness = proxies.lateness
        return Answer(
            at=time.monotonic(),
            links=proxies.report(),
            lateness_p50_s=lateness.quantile(0.5),
            lateness_p99_s=lateness.quantile(0.99),
        )
    else:
        raise UsageError(f"unknown call {order.call!r}")
    return Answer(at=time.monotonic())


if __name__ == "__main__":
    run(serve())
