"""`anabranch request`: publishes, waits for the replies, and prints them or what they merge to."""

import sys
from typing import Annotated

import msgspec
import typer

from anabranch.overlay.asking import Protocol
from anabranch.overlay.errors import UsageError
from anabranch.overlay.expressions import parse
from anabranch.overlay.merging import Merges
from anabranch.overlay.patterns import check_topic
from anabranch.overlay.selections import site_topic
from anabranch.tools.commands.options import checked_number, with_settings
from anabranch.tools.commands.running import (
    CommandError,
    make_endpoint,
    nobody_answered,
    run_to_end,
    unfinished,
)
from anabranch.transport.harvest import Harvest
from anabranch.transport.peer import Peer
from anabranch.transport.settings import Settings

_encoder = msgspec.json.Encoder(enc_hook=repr)


@with_settings()
def request(
    settings: Settings,
    topic: Annotated[
        str | None,
        typer.Argument(
            help="Whom to ask: all who want this topic; with --to, '@site' by default.", show_default=False
        ),
    ] = None,
    payload: Annotated[
        str | None, typer.Argument(help="What to ask; nothing by default.", show_default=False)
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="Only sites for which this is true: \"region = 'north'\".")
    ] = None,
    merge: Annotated[
        str, typer.Option("--merge", help="One value of all replies: histogram, count, sum, mean, top:5, …")
    ] = "",
    protocol: Annotated[
        str | None, typer.Option("--protocol", help=f"How replies travel: {', '.join(Protocol)}.")
    ] = None,
    within: Annotated[float, typer.Option("--within", help="Seconds to wait for replies.")] = 10.0,
    tau: Annotated[
        float | None,
        typer.Option("--tau", help="Silence that ends publish, direct and datagram, in seconds."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The payload is JSON; print the result as one JSON object.")
    ] = False,
    wait: Annotated[int, typer.Option("--wait", help="Begin when this many peers want the topic.")] = 1,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds to wait for them, and for a peer.")
    ] = 5.0,
) -> int:
    """Ask everybody who wants a topic, and print their replies: site, tab, reply; or the merged value.

    Exit code 1 when nobody was asked or the result is partial; who is missing is told on stderr, with where
    and why.
    """
    if to is not None:
        to = parse(to, settings.config.site_attributes).text
    asked = check_topic(topic if topic is not None else site_topic("request", to))
    checked_number("--within", within, 0.001, 4000.0)
    checked_number("--wait", wait, 0, 1_000_000)
    checked_number("--timeout", timeout, 0.0, 1e9)
    if tau is not None:
        checked_number("--tau", tau, 0.001, 4000.0)
    if protocol is not None and protocol not in list(Protocol):
        raise UsageError(f"--protocol {protocol!r}: one of {', '.join(Protocol)}")
    if merge:
        Merges().parse(merge)
    value: object = payload
    if as_json and payload is not None:
        try:
            value = msgspec.json.decode(payload.encode())
        except msgspec.DecodeError as error:
            raise UsageError(
                f"payload {payload[:60]!r} is not JSON ({error}): quote a text as '\"text\"', "
                "or leave out --json"
            ) from None
    endpoint = make_endpoint(settings, "request")

    async def ask() -> int:
        async with endpoint as peer:
            await _wait(peer, asked, to, wait, timeout, settings)
            harvest = await peer.request(
                asked, value, to=to, merge=merge, protocol=protocol, within=within, tau=tau
            )
            return await _tell(harvest, bool(merge), as_json)

    return run_to_end(ask(), when_stopped=unfinished)


async def _wait(
    peer: Peer, topic: str, to: str | None, wait: int, timeout: float, settings: Settings
) -> None:
    if not settings.listen:
        try:
            await peer.wait_for_links(timeout=timeout)
        except TimeoutError:
            raise nobody_answered(settings, timeout) from None
    try:
        if wait:
            await peer.wait_for_subscribers(topic, wait, to=to, timeout=timeout)
    except TimeoutError as error:
        raise CommandError(
            f"{error}; wait longer with --timeout, or ask all the same with --wait 0"
        ) from None


async def _tell(harvest: Harvest, is_merged: bool, as_json: bool) -> int:
    if not as_json and not is_merged:
        async for reply in harvest:
            sys.stdout.write(f"{reply.site}\t{_encoder.encode(reply.value).decode()}\n")
            sys.stdout.flush()
    result = await harvest
    if as_json:
        sys.stdout.write(_encoder.encode(result).decode() + "\n")
    elif is_merged:
        sys.stdout.write(_encoder.encode(result.value).decode() + "\n")
    if not result.asked:
        sys.stderr.write(f"nobody wants {harvest.topic!r}: nobody was asked\n")
    for each in result.missing:
        sys.stderr.write(f"missing: {each.site} (at {each.where}: {each.why})\n")
    return 0 if result.complete and result.asked else 1
