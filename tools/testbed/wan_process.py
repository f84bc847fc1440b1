"""The emulated wide-area network in a process of its own, which makes the hosts and takes orders on stdin.

`WanProcess` is the handle. The hosts end with this process, and it ends with its parent.
"""

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from anabranch.overlay.errors import AnabranchError
from anabranch.tools.testbed import kernel
from anabranch.tools.testbed.children import Child
from anabranch.tools.testbed.wan import HOSTS_MAX, Wan, address_of
from anabranch.transport.simulator import Conditions

ANSWER_TIMEOUT_S = 15.0


class Order(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the process is asked to do."""

    call: str
    """`make` once, first; then `shape` and `report`."""
    hosts: int = 0
    default: Conditions | None = None
    seed: int = 0
    own_user: bool = False
    """Make a user namespace first: the user is not root."""
    ways: list[tuple[int, int, Conditions]] = []


class Answer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One for each order, in their order."""

    at: float
    """`time.monotonic` when it was done."""
    namespaces: list[str] = []
    """Paths by which other processes enter the hosts, in their order."""
    user: str = ""
    """Path of the user namespace to enter first, if there is one."""
    carried: int = 0
    lost: int = 0
    refused: int = 0
    """By devices, or because too much was under way: 0 in a valid run."""
    lateness_p50_s: float | None = None
    lateness_p99_s: float | None = None
    real_time: bool = False
    error: str = ""


class WanProcess:
    """The calls on an emulated network in another process."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self._events = child.events()
        self._turn = asyncio.Lock()

    @classmethod
    async def start(cls, stderr_path: Path, module: str = __name__) -> "WanProcess":
        """Start it; `end()` its child in any case. `module`: another that follows the same orders."""
        return cls(await Child.start("wan", module, stderr_path))

    async def make(self, hosts: int, default: Conditions, seed: int, *, own_user: bool) -> Answer:
        """Make the hosts; AnabranchError if the system does not let us."""
        return await self._ask(Order(call="make", hosts=hosts, default=default, seed=seed, own_user=own_user))

    async def shape(self, ways: Mapping[tuple[int, int], Conditions]) -> float:
        """Change directions between hosts, counted from 1; when it was done."""
        listed = [(source, target, conditions) for (source, target), conditions in ways.items()]
        return (await self._ask(Order(call="shape", ways=listed))).at

    async def report(self) -> Answer:
        """What was carried, and how punctually."""
        return await self._ask(Order(call="report"))

    async def _ask(self, order: Order) -> Answer:
        async with self._turn:
            self.child.tell(order)
            try:
                line = await asyncio.wait_for(anext(self._events), ANSWER_TIMEOUT_S)
            except (StopAsyncIteration, TimeoutError) as failure:
                what = "did not answer" if isinstance(failure, TimeoutError) else "has ended"
                raise AnabranchError(f"the emulated network {what}: {self.child.wrote()}") from None
        answer = msgspec.json.decode(line, type=Answer)
        if answer.error:
            raise AnabranchError(answer.error)
        return answer


class _Server:
    def __init__(self) -> None:
        self._rest = b""
        self._wan: Wan | None = None
        self._real_time = False

    def serve(self) -> None:
        """Until stdin ends. The hosts are there as long as this process is."""
        while self._wan is None:
            self._take()
        self._real_time = kernel.take_real_time()
        os.set_blocking(0, False)
        self._wan.run(0, self._take)

    def _take(self) -> None:
        chunk = os.read(0, 1 << 20)
        if not chunk:
            if self._wan is None:
                sys.exit(0)
            self._wan.stop()
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            os.write(1, msgspec.json.encode(self._follow(msgspec.json.decode(line, type=Order))) + b"\n")

    def _follow(self, order: Order) -> Answer:
        if order.call == "make":
            return self._make(order)
        assert self._wan is not None
        if order.call == "shape":
            for source, target, conditions in order.ways:
                self._wan.shape(source, target, conditions)
            return Answer(at=time.monotonic())
        carried, lost = self._wan.counts()
        lateness = self._wan.lateness
        return Answer(
            at=time.monotonic(),
            carried=carried,
            lost=lost,
            refused=self._wan.refused + self._wan.overflowed,
            lateness_p50_s=lateness.quantile(0.5),
            lateness_p99_s=lateness.quantile(0.99),
            real_time=self._real_time,
        )

    def _make(self, order: Order) -> Answer:
        try:
            namespaces, devices = make_hosts(order.hosts, own_user=order.own_user)
        except OSError as error:
            return Answer(at=time.monotonic(), error=str(error.strerror or error))
        self._wan = Wan(devices, order.default or Conditions(), order.seed)
        process = f"/proc/{os.getpid()}"
        return Answer(
            at=time.monotonic(),
            namespaces=[f"{process}/fd/{fd}" for fd in namespaces],
            user=f"{process}/ns/user" if order.own_user else "",
        )


def make_hosts(count: int, *, own_user: bool) -> tuple[Sequence[int], dict[int, int]]:
    """(namespaces, devices by number of the host); OSError tells which call the system refused."""
    if not 1 <= count <= HOSTS_MAX:
        raise OSError(f"{count} hosts: from 1 to {HOSTS_MAX}")
    if own_user:
        kernel.become_root_of_own()
        kernel.end_with_parent()  # new rights take that back
    namespaces, devices = [], {}
    for number in range(1, count + 1):
        namespace, device = kernel.make_host(address_of(number))
        namespaces.append(namespace)
        devices[number] = device
    return namespaces, devices


def try_out() -> None:
    """Make two hosts, or end with what the system says."""
    try:
        make_hosts(2, own_user=os.geteuid() != 0)
    except OSError as error:
        sys.exit(f"namespaces with a TUN device are not usable: {error}")


if __name__ == "__main__":
    kernel.end_with_parent()
    if sys.argv[1:] == ["try"]:
        try_out()
    else:
        _Server().serve()
