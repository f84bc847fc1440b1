"""`anabranch pub`: publishes a payload, lines of stdin or random bytes."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
import typer

from anabranch.overlay.errors import UsageError
from anabranch.overlay.expressions import parse
from anabranch.overlay.patterns import check_topic
from anabranch.overlay.qos import Guarantee
from anabranch.tools.commands.options import checked_attributes, checked_number, with_settings
from anabranch.tools.commands.printing import stdin_lines
from anabranch.tools.commands.running import (
    CommandError,
    check_store,
    make_endpoint,
    nobody_answered,
    run_to_end,
    unfinished,
)
from anabranch.transport.assured import AssuredPublisher, guarantee_of
from anabranch.transport.peer import Peer
from anabranch.transport.settings import Settings

_LOSSES = ("no_route", "no_link", "queue_full", "link_lost")
"""Reasons for which a message of ours can end on our side of the first link."""


class _Order(msgspec.Struct, kw_only=True):
    """What to publish, checked."""

    topic: str
    payload: bytes | None
    """None: lines of stdin."""
    size: int | None
    count: int | None
    rate: float
    wait: int
    timeout: float
    as_json: bool
    attributes: dict[str, object] | None
    to: str | None
    guarantee: Guarantee
    confirm: float


@with_settings()
def pub(
    settings: Settings,
    topic: Annotated[str, typer.Argument(help="Where to, as in air/radar/nyc.")],
    payload: Annotated[
        str | None,
        typer.Argument(help="What; '-' or nothing publishes each line of stdin.", show_default=False),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", help="How often (once); of stdin, how many lines at most (all).")
    ] = None,
    rate: Annotated[
        float, typer.Option("--rate", help="Messages per second; 0 for as fast as they go.")
    ] = 0.0,
    size: Annotated[
        int | None, typer.Option("--size", help="Publish this many random bytes instead.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Payloads are JSON and travel as values; tell the outcome as JSON.")
    ] = False,
    wait: Annotated[int, typer.Option("--wait", help="Begin when this many peers want the topic.")] = 1,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds to wait for them, and for a peer.")
    ] = 5.0,
    attributes: Annotated[
        str | None,
        typer.Option("--attributes", help="What filters look at, as a JSON object: '{\"altitude\": 900}'."),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="Only to sites for which this is true: \"region = 'north'\".")
    ] = None,
    guarantee: Annotated[
        str, typer.Option("--guarantee", help="best_effort, acknowledged or persistent.")
    ] = Guarantee.BEST_EFFORT.value,
    confirm: Annotated[
        float, typer.Option("--confirm", help="Seconds to wait for confirmations, with a guarantee.")
    ] = 10.0,
) -> int:
    """Publish to a topic, and tell how many messages went out, and to whom.

    A light client of the peer at --join (tcp://127.0.0.1:7400 by default), or a peer itself with --listen.
    When nobody wants the topic, or something was dropped or not confirmed, it says so and ends with code 1.
    Unconfirmed messages of a persistent publisher stay in its store: that is told, and no failure.
    """
    if size is not None and payload is not None:
        raise UsageError(f"payload {payload!r} and --size {size}: give one of them")
    if payload in (None, "-") and size is None and sys.stdin is None:
        raise UsageError("no payload, and stdin is closed: give a payload, or lines on stdin")
    promise = guarantee_of(guarantee)
    if promise is Guarantee.PERSISTENT:
        check_store(settings, "--guarantee persistent")
    order = _Order(
        topic=check_topic(topic),
        payload=None if payload in (None, "-") else os.fsencode(payload),
        size=checked_number("--size", size, 0, settings.config.payload_max_bytes),
        count=checked_number("--count", count, 1, 10**12),
        rate=checked_number("--rate", rate, 0.0, 1e9),
        wait=checked_number("--wait", wait, 0, 1_000_000),
        timeout=checked_number("--timeout", timeout, 0.0, 1e9),
        as_json=as_json,
        attributes=checked_attributes(attributes, settings.config.message_attributes),
        to=parse(to, settings.config.site_attributes).text if to is not None else None,
        guarantee=promise,
        confirm=checked_number("--confirm", confirm, 0.0, 1e9),
    )
    if as_json and order.payload is not None:
        _value(order.payload, "payload")
    endpoint = make_endpoint(settings, "pub")
    return run_to_end(_publish(endpoint, order, settings), when_stopped=unfinished)


async def _publish(endpoint: Peer, order: _Order, settings: Settings) -> int:
    begun = time.monotonic()
    messages = 0
    async with endpoint as peer:
        subscribers = await _find_subscribers(peer, order, settings)
        publisher = await peer.publisher(order.topic, guarantee=order.guarantee)
        missing: dict[str, str] = {}
        loop = asyncio.get_running_loop()
        started = loop.time()
        async for payload in _payloads(order, settings.config.payload_max_bytes):
            await publisher.put(payload, attributes=order.attributes, to=order.to)
            messages += 1
            if order.rate:
                await asyncio.sleep(max(0.0, started + messages / order.rate - loop.time()))
        if isinstance(publisher, AssuredPublisher):
            subscribers = sorted({*subscribers, *publisher.receivers})
            missing = (await publisher.confirmed(order.confirm)).missing
        subscribers = sorted({*subscribers, *_receivers(peer, order)})
    counters = peer.counters
    outcome = {
        "topic": order.topic,
        "messages": messages,
        "subscribers": subscribers,
        "unwanted": counters["published_unwanted"],
        "dropped": sum(counters[f"dropped.{reason}"] for reason in _LOSSES),
        "guarantee": order.guarantee.value,
        "missing": missing,
        "seconds": round(time.monotonic() - begun, 3),
    }
    _tell(outcome, order.as_json)
    if order.guarantee is Guarantee.BEST_EFFORT:
        return 1 if outcome["unwanted"] or outcome["dropped"] else 0
    return 1 if outcome["unwanted"] or (missing and order.guarantee is Guarantee.ACKNOWLEDGED) else 0


async def _find_subscribers(peer: Peer, order: _Order, settings: Settings) -> list[str]:
    try:
        async with asyncio.timeout(order.timeout):
            if not settings.listen:
                await peer.wait_for_links()
            if order.wait:
                await peer.wait_for_subscribers(
                    order.topic, order.wait, attributes=order.attributes, to=order.to
                )
    except TimeoutError:
        if not settings.listen and not peer.report()["links"]:
            raise nobody_answered(settings, order.timeout) from None
        found = _receivers(peer, order)
        who = f"{len(found)} of {order.wait} peers want" if found else "nobody wants"
        raise CommandError(
            f"{who} {order.topic!r} after {order.timeout:g} s: nothing was published; wait longer with "
            "--timeout, or publish all the same with --wait 0"
        ) from None
    return list(_receivers(peer, order))


def _receivers(peer: Peer, order: _Order) -> tuple[str, ...]:
    return peer.subscribers(order.topic, attributes=order.attributes, to=order.to)


async def _payloads(order: _Order, payload_max_bytes: int) -> AsyncIterator[object]:
    if order.size is not None or order.payload is not None:
        for _ in range(order.count or 1):
            if order.size is not None:
                yield os.urandom(order.size)
            elif order.payload is not None:
                yield _value(order.payload, "payload") if order.as_json else order.payload
        return
    number = 0
    try:
        async for line in stdin_lines(payload_max_bytes):
            number += 1
            yield _value(line, f"line {number} of stdin") if order.as_json else line
            if number == order.count:
                return
    except OSError as error:
        raise CommandError(f"stdin cannot be read: {error.strerror}; give a payload instead") from None
    except ValueError as error:
        raise UsageError(
            f"line {number + 1} of stdin: {error}; split it, or --set payload_max_bytes"
        ) from None


def _value(text: bytes, what: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        shown = text[:60].decode(errors="replace")
        raise UsageError(
            f"{what} {shown!r} is not JSON ({error}): quote a text as '\"text\"', or leave out --json"
        ) from None


def _tell(outcome: dict[str, object], as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(outcome) + "\n")
        return
    topic = outcome["topic"]
    messages = "1 message" if outcome["messages"] == 1 else f"{outcome['messages']} messages"
    if outcome["messages"] and outcome["unwanted"] == outcome["messages"]:
        sys.stderr.write(f"nobody wanted {topic!r}: {messages} published in vain\n")
        return
    who = ", ".join(outcome["subscribers"]) or "nobody"  # type: ignore[arg-type]
    sys.stdout.write(f"published {messages} to {topic!r} for {who}\n")
    if outcome["unwanted"]:
        sys.stderr.write(f"{outcome['unwanted']} of them when nobody wanted them\n")
    if outcome["missing"]:
        missing: dict[str, str] = outcome["missing"]  # type: ignore[assignment]
        kept = "; they are kept in the store" if outcome["guarantee"] == Guarantee.PERSISTENT else ""
        named = ", ".join(f"{peer} ({reason})" for peer, reason in missing.items())
        sys.stderr.write(f"not all was confirmed by {named}{kept}\n")
    elif outcome["dropped"] and outcome["guarantee"] == Guarantee.BEST_EFFORT:
        sys.stderr.write(
            f"{outcome['dropped']} were dropped on the way out: the links had no room, or broke\n"
        )
