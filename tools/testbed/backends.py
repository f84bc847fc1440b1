"""How emulated hosts and the network between them are made: one interface, three backends, and which work.

`emulating.py` asks for hosts, tells conditions by direction, and asks at the end how well the emulation did.
"""

import enum
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from anabranch.overlay.errors import UsageError
from anabranch.tools.scenarios.schema import Pair
from anabranch.tools.testbed import netem_process, proxies, wan_process
from anabranch.tools.testbed.proxy_process import ProxyProcess
from anabranch.tools.testbed.wan import HOSTS_MAX, address_of
from anabranch.transport.simulator import Conditions

PORT = 7400
PROBE_TIMEOUT_S = 20


class BackendKind(enum.StrEnum):
    """What emulates the network."""

    NAMESPACES = "namespaces"
    """A network namespace per host and a wide-area network in user space between them."""
    NETEM = "netem"
    """A network namespace per host, and the kernel's own emulation on their devices."""
    PROXIES = "proxies"
    """Processes on loopback, and a TCP proxy for each link."""


class Host(msgspec.Struct, frozen=True):
    """Where a peer's process lives."""

    listen: str
    advertise: list[str]
    namespaces: list[str]
    """Paths that its process enters: network, and user if there is one."""


class Emulation(msgspec.Struct, frozen=True, kw_only=True):
    """How well the network was emulated."""

    backend: BackendKind
    lateness_p50_ms: float | None = None
    lateness_p99_ms: float | None = None
    """How much later than due packets left."""
    refused: int = 0
    """Packets that the emulation lost by itself."""
    real_time: bool = False
    """Whether the emulation ran before ordinary processes."""


class Backend(Protocol):
    """Hosts and the network between them. `close` in any case, also when `open` failed."""

    kind: BackendKind

    async def open(self, names: Sequence[str], links: Sequence[Pair], default: Conditions, seed: int) -> None:
        """Make hosts; `links` are who dials whom."""

    def host(self, name: str) -> Host:
        """Where this peer lives."""

    def dials(self, name: str, others: Sequence[str]) -> list[str]:
        """The addresses by which it reaches others."""

    async def shape(self, changes: Mapping[Pair, Conditions]) -> None:
        """Change directions."""

    async def report(self) -> Emulation:
        """How well it did."""

    async def close(self) -> None:
        """Leave nothing behind. Idempotent."""


class NamespaceBackend:
    """Hosts are namespaces; what lies between them is `module` (the user-space network, or netem)."""

    def __init__(self, kind: BackendKind, scratch: Path) -> None:
        self.kind = kind
        self._scratch = scratch
        self._wan: wan_process.WanProcess | None = None
        self._numbers: dict[str, int] = {}
        self._made = wan_process.Answer(at=0.0)

    async def open(self, names: Sequence[str], links: Sequence[Pair], default: Conditions, seed: int) -> None:
        """Make a host for each peer."""
        del links
        if len(names) > HOSTS_MAX:
            raise UsageError(f"{len(names)} peers: {HOSTS_MAX} hosts at most; use `anabranch sim`")
        module = netem_process if self.kind is BackendKind.NETEM else wan_process
        self._wan = await wan_process.WanProcess.start(self._scratch / "wan.stderr", module.__name__)
        self._numbers = {name: number for number, name in enumerate(names, 1)}
        self._made = await self._wan.make(len(names), default, seed, own_user=os.geteuid() != 0)

    def host(self, name: str) -> Host:
        """A namespace with one address."""
        number = self._numbers[name]
        address = f"tcp://{address_of(number)}:{PORT}"
        user = [self._made.user] if self._made.user else []
        return Host(address, [address], [self._made.namespaces[number - 1], *user])

    def dials(self, name: str, others: Sequence[str]) -> list[str]:
        """The others' own addresses."""
        del name
        return [f"tcp://{address_of(self._numbers[other])}:{PORT}" for other in others]

    async def shape(self, changes: Mapping[Pair, Conditions]) -> None:
        """Change directions."""
        assert self._wan is not None
        numbers = self._numbers
        await self._wan.shape({(numbers[a], numbers[b]): each for (a, b), each in changes.items()})

    async def report(self) -> Emulation:
        """How punctual the network was."""
        assert self._wan is not None
        answer = await self._wan.report()
        return Emulation(
            backend=self.kind,
            lateness_p50_ms=_ms(answer.lateness_p50_s),
            lateness_p99_ms=_ms(answer.lateness_p99_s),
            refused=answer.refused,
            real_time=answer.real_time,
        )

    async def close(self) -> None:
        """End the process; the namespaces go with it."""
        if self._wan is not None:
            await self._wan.child.end()


class ProxyBackend:
    """Peers on loopback, each link a proxy. Only the links of the scenario can be dialled."""

    kind = BackendKind.PROXIES

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._proxies: ProxyProcess | None = None
        self._ports: dict[str, int] = {}
        self._addresses: dict[Pair, str] = {}
        self._now: dict[Pair, Conditions] = {}
        self._default = Conditions()

    async def open(self, names: Sequence[str], links: Sequence[Pair], default: Conditions, seed: int) -> None:
        """Open a proxy per link."""
        del seed
        self._default = default
        self._ports = dict(zip(names, _free_ports(len(names)), strict=True))
        self._proxies = await ProxyProcess.start(self._scratch / "proxies.stderr")
        shape = _for_proxies(default)
        for source, target in links:
            self._addresses[source, target] = await self._proxies.open(
                f"{source} {target}", target=self._own(target), there=shape, back=shape
            )

    def host(self, name: str) -> Host:
        """A port on loopback."""
        return Host(self._own(name), [self._own(name)], [])

    def dials(self, name: str, others: Sequence[str]) -> list[str]:
        """The proxies' addresses."""
        return [self._addresses[name, other] for other in others]

    async def shape(self, changes: Mapping[Pair, Conditions]) -> None:
        """Change directions; those without a link are of no use here."""
        assert self._proxies is not None
        self._now |= changes
        concerned = dict.fromkeys(
            link for way in changes for link in (way, way[::-1]) if link in self._addresses
        )
        for source, target in concerned:
            there = self._now.get((source, target), self._default)
            back = self._now.get((target, source), self._default)
            await self._proxies.shape(f"{source} {target}", _for_proxies(there), _for_proxies(back))

    async def report(self) -> Emulation:
        """How punctual the proxies were."""
        assert self._proxies is not None
        answer = await self._proxies.report()
        return Emulation(
            backend=self.kind,
            lateness_p50_ms=_ms(answer.lateness_p50_s),
            lateness_p99_ms=_ms(answer.lateness_p99_s),
        )

    async def close(self) -> None:
        """End the process of the proxies."""
        if self._proxies is not None:
            await self._proxies.child.end()

    def _own(self, name: str) -> str:
        return f"tcp://127.0.0.1:{self._ports[name]}"


def make_backend(wanted: str, scratch: Path) -> Backend:
    """The backend of this name, or with `auto` the best that works here; UsageError says why one does not."""
    if wanted == "auto":
        wanted = BackendKind.NAMESPACES if not why_not(BackendKind.NAMESPACES) else BackendKind.PROXIES
    try:
        kind = BackendKind(wanted)
    except ValueError:
        raise UsageError(f"--backend {wanted}: one of auto, {', '.join(BackendKind)}") from None
    if kind is BackendKind.PROXIES:
        return ProxyBackend(scratch)
    if reason := why_not(kind):
        raise UsageError(f"--backend {kind}: {reason}; `anabranch testbed doctor` tells what works here")
    return NamespaceBackend(kind, scratch)


def why_not(kind: BackendKind) -> str:
    """Why a backend does not work here, found out by trying in a process of its own; empty when it does."""
    if kind is BackendKind.PROXIES:
        return ""
    if sys.platform != "linux":
        return f"needs Linux; this is {sys.platform}"
    module = netem_process if kind is BackendKind.NETEM else wan_process
    try:
        done = subprocess.run(  # noqa: S603 - this program itself
            (sys.executable, "-P", "-m", module.__name__, "try"),
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"trying it took more than {PROBE_TIMEOUT_S} s"
    if done.returncode == 0:
        return ""
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines else f"trying it ended with code {done.returncode}"


def _for_proxies(conditions: Conditions) -> proxies.Conditions:
    return proxies.Conditions(
        delay_s=min(conditions.delay_s, 60.0),
        jitter_s=min(conditions.jitter_s, 60.0),
        loss=conditions.loss,
        loss_after_loss=conditions.loss_after_loss,
        rate_bytes_s=conditions.rate_bytes_s,
        blackhole=conditions.blackhole or conditions.loss >= 1,
    )


def _free_ports(count: int) -> list[int]:
    import socket

    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)
