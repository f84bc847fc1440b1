"""The public face of a light client."""

from collections.abc import Sequence
from pathlib import Path

from anabranch.overlay.config import Config
from anabranch.overlay.qos import Role
from anabranch.transport.peer import Peer


class Client(Peer):
    """A light client: the API of a peer without routing duties.

    It attaches to one of the `join` addresses, and moves to another (of those, or of peers it heard of)
    when that peer is gone.
    """

    def __init__(
        self,
        name: str,
        *,
        join: str | Sequence[str],
        config: Config | None = None,
        store_dir: str | Path | None = None,
        identity: str | Path | None = None,
        open: bool = False,  # noqa: A002 - as for Peer
    ) -> None:
        config = (config or Config()).replace(role=Role.CLIENT)
        super().__init__(name, join=join, config=config, store_dir=store_dir, identity=identity, open=open)
