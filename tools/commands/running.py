"""Runs the peer of a command: which kind it is, how long it runs, and how it ends."""

import asyncio
import secrets
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from anabranch.overlay.errors import UsageError
from anabranch.overlay.qos import Role
from anabranch.transport import loops
from anabranch.transport.identities import MeshIdentity
from anabranch.transport.peer import Peer
from anabranch.transport.settings import Settings
from anabranch.transport.topics.policy import Tdn

DEFAULT_ADDRESS = "tcp://127.0.0.1:7400"
"""Where `anabranch peer` listens and the others look for it when nothing is said."""


class CommandError(Exception):
    """The command cannot do what it was asked; its text is told, and the exit code is 1."""


def run_to_end(work: Coroutine[Any, Any, int], when_stopped: Callable[[int], int]) -> int:
    """Run a command's work; its exit code.

    SIGINT and SIGTERM cancel the work, which closes its peer in order; then `when_stopped(signal number)` is
    the exit code. A second signal ends the process at once.
    """
    try:
        return loops.run(_until_stopped(work, when_stopped))
    except CommandError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def unfinished(number: int) -> int:
    """The exit code of something that a signal stopped before its end, as shells give it."""
    return 128 + number


def make_peer(settings: Settings, kind: str, tdn: Tdn | None = None) -> Peer:
    """A peer as the settings say: a full one where it listens or joins, on the default address otherwise."""
    has_place = settings.listen or settings.join or settings.beacon
    return _make(settings, kind, listen=settings.listen if has_place else [DEFAULT_ADDRESS], tdn=tdn)


def make_endpoint(settings: Settings, kind: str) -> Peer:
    """A full peer if it shall listen, else a light client of the mesh it joins."""
    if settings.listen:
        return _make(settings, kind, listen=settings.listen)
    has_way = settings.join or settings.beacon
    config = settings.config.replace(role=Role.CLIENT)
    return _make(
        settings, kind, listen=[], config=config, join=settings.join if has_way else [DEFAULT_ADDRESS]
    )


def make_observer(settings: Settings) -> Peer:
    """A light client that only looks: it has a name of its own, whatever the settings say."""
    config = settings.config.replace(role=Role.CLIENT)
    return Peer(
        _name_in(settings, "observer"),
        join=settings.join or [DEFAULT_ADDRESS],
        config=config,
        identity=settings.identity,
        open=settings.open,
    )


def check_store(settings: Settings, option: str) -> None:
    """UsageError unless there is a store, under a name that is the same the next time."""
    if not settings.store_dir or not settings.name:
        raise UsageError(f"{option}: needs --store-dir DIR and --name NAME, by which it is found again")


def place_of(settings: Settings) -> str:
    """Where a client looks for its peer, for people."""
    if settings.join or not settings.beacon:
        return ", ".join(settings.join or [DEFAULT_ADDRESS])
    return f"the beacons of {settings.beacon}"


def nobody_answered(settings: Settings, within_s: float) -> CommandError:
    """What to tell when no peer was there to attach to."""
    return CommandError(
        f"no peer answered at {place_of(settings)} within {within_s:g} s: start one there with "
        "'anabranch peer', or name another with --join"
    )


def _make(
    settings: Settings,
    kind: str,
    *,
    listen: list[str],
    join: list[str] | None = None,
    config: Any = None,
    tdn: Tdn | None = None,
) -> Peer:
    if settings.beacon_unicast and not settings.beacon:
        raise UsageError(
            f"beacon_unicast = {settings.beacon_unicast}: needs a group as well, as in "
            "--beacon udp://239.192.7.40:7400 (its port is the one to send to)"
        )
    if settings.advertise and not listen:
        raise UsageError(f"advertise = {settings.advertise}: needs --listen, for nobody could be let in")
    return Peer(
        settings.name or _name_in(settings, kind),
        listen=listen,
        join=settings.join if join is None else join,
        advertise=settings.advertise,
        config=config or settings.config,
        beacon=settings.beacon or None,
        beacon_unicast=settings.beacon_unicast,
        log_dir=settings.log_dir,
        profile=settings.profile,
        store_dir=settings.store_dir,
        identity=settings.identity,
        open=settings.open,
        tdn=tdn,
    )


def _name_in(settings: Settings, kind: str) -> str:
    """The name that an identity gives, else one that is made up."""
    if settings.identity is None:
        return _made_up_name(kind)
    return MeshIdentity(Path(settings.identity), settings.config).name


def _made_up_name(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(4)}"


async def _until_stopped(work: Coroutine[Any, Any, int], when_stopped: Callable[[int], int]) -> int:
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    numbers = (signal.SIGINT, signal.SIGTERM)
    caught: list[int] = []

    def stop(number: int) -> None:
        caught.append(number)
        for each in numbers:
            loop.remove_signal_handler(each)
        task.cancel()

    for number in numbers:
        loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not caught:
            raise
        return when_stopped(caught[0])
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
