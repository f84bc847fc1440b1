"""Links between peers on one machine, each a TCP proxy on loopback with its own delay and its own troubles.

Knows named links and what they do to the bytes that pass; decides nothing. Needs no privilege. Used by the
demonstration (in a process of its own: `proxy_process.py`) and by tests.
"""

import asyncio
import enum
import random
from typing import Self

import msgspec

from anabranch.overlay.addresses import parse_address
from anabranch.overlay.errors import UsageError
from anabranch.tools.testbed.alarms import Alarms
from anabranch.tools.testbed.histogram import Histogram
from anabranch.tools.testbed.pipes import Conditions as Conditions
from anabranch.tools.testbed.pipes import Pair, Surroundings

BUFFER_MAX_BYTES = 4 * 1024 * 1024
"""In flight per direction of a connection: 100 ms at 40 MB/s."""
CONNECTIONS_MAX = 64
"""Per link; the oldest is reset for a new one, as most of those of a blackholed link are abandoned."""


class LinkState(enum.StrEnum):
    """What a link does with connections."""

    PASSING = "passing"
    BLACKHOLED = "blackholed"
    """Nothing passes, not even the end of a connection; new connections are accepted and stay silent."""
    CUT = "cut"
    """Connections are reset, new ones too."""


class LinkReport(msgspec.Struct, frozen=True, kw_only=True):
    """One link as it stands."""

    link: str
    address: str
    state: LinkState
    there: Conditions
    back: Conditions
    connections: int
    passed_bytes: int
    in_flight_bytes: int


class Proxies:
    """A set of named links. `async with Proxies() as proxies: address = await proxies.open("a-b", ...)`.

    A link is dialled at the address that `open` returns and leads to its target; *there* is the direction
    from the side that dials to the target, *back* the other one.
    """

    def __init__(
        self, *, host: str = "127.0.0.1", seed: int = 0, buffer_max_bytes: int = BUFFER_MAX_BYTES
    ) -> None:
        self._host = host
        self._rng = random.Random(seed)  # noqa: S311 - jitter
        self._buffer_max_bytes = buffer_max_bytes
        self._links: dict[str, _Link] = {}
        self._alarms: Alarms | None = None
        self.lateness = Histogram()
        """How much later than due chunks left: how far the emulation can be trusted."""

    async def __aenter__(self) -> Self:
        self._alarms = Alarms()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(
        self,
        name: str,
        *,
        target: str | None = None,
        there: Conditions | None = None,
        back: Conditions | None = None,
    ) -> str:
        """Listen for a new link; the address to dial. Without a target, connections wait until `aim`.

        `back` is like `there` unless it is given.
        """
        if self._alarms is None:
            raise UsageError("proxies are not open: use async with Proxies()")
        if name in self._links:
            raise UsageError(f"link {name!r} is open already")
        there = there or Conditions()
        surroundings = Surroundings(self._alarms, self.lateness, self._rng, self._buffer_max_bytes)
        link = _Link(name, there, back or there, surroundings)
        if target is not None:
            link.target = _host_and_port(target)
        self._links[name] = link
        await link.listen(self._host)
        return link.address

    def aim(self, name: str, target: str) -> None:
        """Where new connections lead to, and those that wait for a target."""
        link = self._link(name)
        link.target = _host_and_port(target)
        link.refresh()

    def shape(self, name: str, there: Conditions, back: Conditions | None = None) -> None:
        """Change the conditions for what arrives from now on."""
        link = self._link(name)
        link.there, link.back = there, back or there
        link.refresh()

    def blackhole(self, name: str) -> None:
        """Let nothing pass, and tell nobody."""
        link = self._link(name)
        link.state = LinkState.BLACKHOLED
        link.refresh()

    def cut(self, name: str) -> None:
        """Reset all connections, and new ones, until it is restored."""
        link = self._link(name)
        link.state = LinkState.CUT
        link.reset()

    def restore(self, name: str) -> None:
        """Let all pass again, under the conditions that the link was opened with.

        Connections that a black hole held go on, first with what was on its way.
        """
        link = self._link(name)
        link.state = LinkState.PASSING
        link.there, link.back = link.opened_with
        link.refresh()

    def report(self) -> list[LinkReport]:
        """All links."""
        return [link.report() for link in self._links.values()]

    async def close(self) -> None:
        """Reset all connections and stop to listen. Idempotent."""
        for link in self._links.values():
            await link.close()
        self._links.clear()
        if self._alarms is not None:
            self._alarms.close()
            self._alarms = None

    def _link(self, name: str) -> "_Link":
        try:
            return self._links[name]
        except KeyError:
            raise UsageError(f"no link {name!r}: one of {', '.join(self._links) or 'none'}") from None


class _Link:
    def __init__(self, name: str, there: Conditions, back: Conditions, surroundings: Surroundings) -> None:
        self.name = name
        self.address = ""
        self.there, self.back = self.opened_with = there, back
        self.state = LinkState.PASSING
        self.target: tuple[str, int] | None = None
        self._surroundings = surroundings
        self._server: asyncio.Server | None = None
        self._pairs: dict[Pair, None] = {}
        self._past_bytes = 0

    async def listen(self, host: str) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Pair(self, self._surroundings).near, host, 0)
        port = self._server.sockets[0].getsockname()[1]
        self.address = f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"

    async def close(self) -> None:
        self.state = LinkState.CUT
        self.reset()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def reset(self) -> None:
        for pair in list(self._pairs):
            pair.reset()

    def refresh(self) -> None:
        for pair in list(self._pairs):
            self._apply(pair)

    def report(self) -> LinkReport:
        return LinkReport(
            link=self.name,
            address=self.address,
            state=self.state,
            there=self.there,
            back=self.back,
            connections=len(self._pairs),
            passed_bytes=self._past_bytes + sum(pair.passed_bytes for pair in self._pairs),
            in_flight_bytes=sum(pair.in_flight_bytes for pair in self._pairs),
        )

    # Called by its pairs

    def opened(self, pair: Pair) -> None:
        if len(self._pairs) >= CONNECTIONS_MAX:
            next(iter(self._pairs)).reset()
        self._pairs[pair] = None
        self._apply(pair)

    def closed(self, pair: Pair) -> None:
        if pair in self._pairs:
            del self._pairs[pair]
            self._past_bytes += pair.passed_bytes

    def _apply(self, pair: Pair) -> None:
        if self.state is LinkState.CUT:
            pair.reset()
            return
        passing = self.state is LinkState.PASSING
        pair.there.set_conditions(self.there, passing and not self.there.blackhole)
        pair.back.set_conditions(self.back, passing and not self.back.blackhole)
        both = not (self.there.blackhole or self.back.blackhole)  # or the handshake does not come about
        if passing and both and self.target is not None:
            pair.dial(*self.target)


def _host_and_port(address: str) -> tuple[str, int]:
    parsed = parse_address(address)
    if parsed.scheme != "tcp" or not parsed.port or parsed.is_wildcard:
        raise UsageError(f"target {address!r}: name one host and its port, tcp://127.0.0.1:7400")
    return parsed.host, parsed.port
