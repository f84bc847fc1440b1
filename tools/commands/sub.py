"""`anabranch sub`: prints the messages of matching topics, a line each."""

import asyncio
import base64
from collections.abc import Callable
from typing import Annotated

import msgspec
import structlog
import typer

from anabranch.overlay.attributes import check_attributes, plain
from anabranch.overlay.errors import UsageError
from anabranch.overlay.expressions import parse
from anabranch.overlay.patterns import check_pattern, matches
from anabranch.overlay.qos import Overflow
from anabranch.tools.commands.options import checked_attributes, checked_number, with_settings
from anabranch.tools.commands.printing import Printer
from anabranch.tools.commands.running import check_store, make_endpoint, place_of, run_to_end, unfinished
from anabranch.transport.durable import DurableMessage
from anabranch.transport.message import Message
from anabranch.transport.peer import Peer
from anabranch.transport.settings import Settings
from anabranch.transport.subscription import Subscription

PATIENCE_S = 3.0
"""After this long without a peer, say so once; the client goes on trying."""

_encoder = msgspec.json.Encoder(enc_hook=repr)  # also for keys of maps: whatever arrives can be shown
log = structlog.get_logger("anabranch")


@with_settings()
def sub(
    settings: Settings,
    patterns: Annotated[list[str], typer.Argument(help="Topics; '*' is one level, '**' any number of them.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per message.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Print payloads alone, untouched.")] = False,
    where: Annotated[
        str | None,
        typer.Option("--where", help='Only messages whose attributes pass: "altitude > 10000".'),
    ] = None,
    attributes: Annotated[
        str | None,
        typer.Option("--attributes", help='What this site is, as a JSON object: \'{"region": "north"}\'.'),
    ] = None,
    count: Annotated[int | None, typer.Option("--count", help="End after this many messages.")] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", help="End after this many seconds.")] = None,
    overflow: Annotated[
        str, typer.Option("--overflow", help="When output is too slow: drop_oldest, drop_newest or block.")
    ] = Overflow.DROP_OLDEST.value,
    durable: Annotated[
        str | None,
        typer.Option("--durable", metavar="NAME", help="Go on where the last run of this name ended."),
    ] = None,
) -> int:
    """Print messages as they come: topic, tab, payload. Bytes that are no text are shown in base64.

    A light client of the peer at --join (tcp://127.0.0.1:7400 by default), or a peer itself with --listen.
    With --durable, messages of persistent publishers wait while this does not run; each is printed once.
    With --timeout the exit code is 1 if fewer than --count messages came, or none at all without it.
    """
    for pattern in patterns:
        check_pattern(pattern)
    if where is not None:
        parse(where, settings.config.message_attributes)
    site = checked_attributes(attributes, settings.config.site_attributes)
    if as_json and raw:
        raise UsageError("--json and --raw: give one of them")
    if overflow not in list(Overflow):
        raise UsageError(f"--overflow {overflow!r}: one of {', '.join(Overflow)}")
    if durable is not None:
        if len(patterns) > 1:
            raise UsageError(f"--durable {durable!r} with {len(patterns)} patterns: one at a time")
        check_store(settings, "--durable")
    checked_number("--count", count, 1, 10**12)
    checked_number("--timeout", timeout, 0.0, 1e9)
    show = as_json_line if as_json else raw_line if raw else text_line
    endpoint = make_endpoint(settings, "sub")
    reading = _Reading(endpoint, list(dict.fromkeys(patterns)), show, count, overflow, durable)
    reading.where, reading.site = where, site
    work = reading.run(timeout, place_of(settings) if not settings.listen else "")
    return run_to_end(work, when_stopped=unfinished if count else lambda _: 0)


class _Reading:
    """One run of the command."""

    def __init__(
        self,
        endpoint: Peer,
        patterns: list[str],
        show: Callable[[Message], bytes],
        count: int | None,
        overflow: str,
        durable: str | None,
    ) -> None:
        self._endpoint = endpoint
        self._patterns = patterns
        self._show = show
        self._wanted = count
        self._overflow = overflow
        self.where: str | None = None
        self.site: dict[str, object] | None = None
        """What this site declares that it is."""
        self._durable = durable
        self._taken = 0
        self._is_over = False

    async def run(self, timeout: float | None, place: str) -> int:
        """Until the count is reached, the time is over, or nobody reads the output; the exit code."""
        async with self._endpoint as peer, Printer() as printer:
            if self.site is not None:
                peer.set_attributes(self.site)
            subscriptions = [
                peer.subscribe(pattern, where=self.where, overflow=self._overflow, durable=self._durable)
                for pattern in self._patterns
            ]
            log.info("subscribed", peer=str(peer.name), patterns=self._patterns)
            tasks = [asyncio.create_task(self._print(each, printer)) for each in subscriptions]
            warning = asyncio.create_task(_warn_if_alone(peer, place))
            try:
                done, _ = await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in (*tasks, warning):
                    task.cancel()
                await asyncio.wait([*tasks, warning])
            dropped = sum(each.dropped for each in subscriptions)
        if dropped:
            log.warning("output was too slow", dropped=dropped, overflow=self._overflow)
        return 0 if self._is_over or (self._taken and not self._wanted) else 1

    async def _print(self, subscription: Subscription, printer: Printer) -> None:
        earlier = self._patterns[: self._patterns.index(subscription.pattern)]
        async for message in subscription:
            if self._is_over:
                return
            if any(matches(pattern, message.topic) for pattern in earlier):
                continue  # it is printed for that one
            self._taken += 1
            self._is_over = self._taken == self._wanted
            try:
                await printer.write(self._show(message))
            except BrokenPipeError:
                self._is_over = True
            else:
                if self._is_over and isinstance(message, DurableMessage):
                    await message.accept()  # the next step of the loop would do it
            if self._is_over:
                return


def as_json_line(message: Message) -> bytes:
    """A JSON object; its `encoding` tells what the payload was: text, base64 (other bytes) or value."""
    payload, encoding = message.payload, "value"
    if isinstance(payload, bytes | memoryview):
        payload, encoding = _text_or_base64(bytes(payload))
    line: dict[str, object] = {
        "topic": message.topic,
        "payload": payload,
        "encoding": encoding,
        "origin": message.origin,
        "sequence": message.sequence,
        "path": message.path,
        "age_ms": round(message.age * 1e3, 3),
        "late": message.late,
    }
    if message.attributes:
        line["attributes"] = plain(check_attributes(message.attributes))
    if message.to:
        line["to"] = message.to
    return _encoder.encode(line) + b"\n"


def text_line(message: Message) -> bytes:
    """Topic, tab, payload; what could confuse a terminal is escaped."""
    payload = message.payload
    if isinstance(payload, bytes | memoryview):
        text, encoding = _text_or_base64(bytes(payload))
        text = text if encoding == "text" else f"base64:{text}"
    else:
        text = _encoder.encode(payload).decode()
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    return f"{message.topic}\t{shown}\n".encode()


def raw_line(message: Message) -> bytes:
    """The payload as it came, and an end of line."""
    payload = message.payload
    if isinstance(payload, bytes | memoryview):
        return bytes(payload) + b"\n"
    return _encoder.encode(payload) + b"\n"


def _text_or_base64(payload: bytes) -> tuple[str, str]:
    try:
        return payload.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(payload).decode(), "base64"


async def _warn_if_alone(peer: Peer, place: str) -> None:
    if place:
        try:
            await peer.wait_for_links(timeout=PATIENCE_S)
        except TimeoutError:
            log.warning("no peer answers yet", tried=place)
