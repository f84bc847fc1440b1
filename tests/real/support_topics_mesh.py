"""Peers of one secured mesh, some of them discovery nodes."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from support_identities import Identities

from anabranch import Peer
from anabranch.transport.topics.policy import Tdn


class World:
    """Peers of one secured mesh, all joined to the first."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.identities = Identities(directory)
        self.stack = AsyncExitStack()
        self.peers: list[Peer] = []

    def new(
        self, name: str, *, tdn: Tdn | None = None, is_tdn: bool | None = None, **options: object
    ) -> Peer:
        if is_tdn if is_tdn is not None else tdn is not None:
            self.identities.issue(name, is_tdn=True)
        join = self.peers[0].addresses[0] if self.peers else ()
        return Peer(
            name,
            listen="tcp://127.0.0.1:0",
            join=join,
            identity=self.identities[name],
            tdn=tdn,
            **options,  # type: ignore[arg-type]
        )

    async def add(self, name: str, **options: object) -> Peer:
        peer = await self.stack.enter_async_context(self.new(name, **options))  # type: ignore[arg-type]
        for other in self.peers:
            await peer.wait_for_peers(other.name, timeout=10)
            await other.wait_for_peers(name, timeout=10)
        self.peers.append(peer)
        return peer

    def store(self, name: str = "tdn") -> Tdn:
        return Tdn(store=self.directory / f"{name}-store")


@asynccontextmanager
async def world(directory: Path) -> AsyncIterator[World]:
    made = World(directory)
    async with made.stack:
        yield made
