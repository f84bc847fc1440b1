"""`anabranch peer`: a peer of the mesh as a process of its own."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import structlog
import typer

from anabranch.overlay.errors import UsageError
from anabranch.tools.commands.options import with_settings
from anabranch.tools.commands.running import make_peer, run_to_end
from anabranch.transport.peer import Peer
from anabranch.transport.settings import Settings
from anabranch.transport.topics.policy import Tdn

LOOK_INTERVAL_S = 0.5
"""How often the links are compared with what was logged last."""

log = structlog.get_logger("anabranch")


@with_settings()
def peer(
    settings: Settings,
    as_json: Annotated[bool, typer.Option("--json", help="Print where it listens as a JSON object.")] = False,
    tdn: Annotated[
        Path | None, typer.Option("--tdn", metavar="DIR", help="Be a topic discovery node; keep topics here.")
    ] = None,
    tdn_institution: Annotated[
        list[str] | None, typer.Option("--tdn-institution", help="Keep topics of this one only; repeatable.")
    ] = None,
    tdn_creator: Annotated[
        list[str] | None, typer.Option("--tdn-creator", help="The same for creators.")
    ] = None,
    tdn_descriptor: Annotated[
        list[str] | None, typer.Option("--tdn-descriptor", help="The same for paths, such as 'air/*'.")
    ] = None,
    tdn_entitled: Annotated[
        list[str] | None,
        typer.Option("--tdn-entitled", help="Be private: answer this peer, nobody else; repeatable."),
    ] = None,
) -> int:
    """Run a peer until it is told to stop (Ctrl-C, SIGTERM); then it leaves the mesh in order, with code 0.

    It relays for others, watches its links and logs their changes. Without --listen, --join and --beacon it
    listens on tcp://127.0.0.1:7400; with --join alone it accepts no links itself.
    """
    role = None
    if tdn is not None:
        role = Tdn(
            store=tdn,
            institutions=tuple(tdn_institution or ()),
            creators=tuple(tdn_creator or ()),
            descriptors=tuple(tdn_descriptor or ()),
            private=bool(tdn_entitled),
            entitled=tuple(tdn_entitled or ()),
        )
    elif tdn_institution or tdn_creator or tdn_descriptor or tdn_entitled:
        raise UsageError("--tdn-…: needs --tdn DIR as well, for they are about a topic discovery node")
    return run_to_end(_serve(make_peer(settings, "peer", role), as_json), when_stopped=lambda _: 0)


async def _serve(peer: Peer, as_json: bool) -> int:
    async with peer:
        _tell(peer, as_json)
        known: dict[str, str] = {}
        while True:
            states = {link["peer"]: link["state"] for link in peer.report()["links"]}  # type: ignore[attr-defined]
            for neighbour in sorted(known.keys() | states.keys()):
                before, now = known.get(neighbour, "none"), states.get(neighbour, "down")
                if before != now:
                    log.info("link", neighbour=neighbour, state=now, before=before)
            known = states
            await asyncio.sleep(LOOK_INTERVAL_S)


def _tell(peer: Peer, as_json: bool) -> None:
    if as_json:
        line = json.dumps({"peer": peer.name, "addresses": peer.addresses, "pid": os.getpid()})
    else:
        line = f"{peer.name} listens on {', '.join(peer.addresses) or 'nothing: it only dials'}"
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
