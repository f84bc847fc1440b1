"""`anabranch topics`: create, advertise, find, grant and revoke topics of a secured mesh."""

import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch.overlay.errors import AnabranchError, UsageError
from anabranch.overlay.identifiers import PeerId
from anabranch.security.certificates import when
from anabranch.security.errors import TrustError
from anabranch.security.files import write_private
from anabranch.security.grants import readable
from anabranch.tools.commands.options import checked_number, with_settings
from anabranch.tools.commands.running import (
    CommandError,
    make_endpoint,
    nobody_answered,
    run_to_end,
    unfinished,
)
from anabranch.transport.peer import Peer
from anabranch.transport.settings import Settings
from anabranch.transport.topics.calls import handing_decoder
from anabranch.transport.topics.query import Query, QueryError, check_query
from anabranch.transport.topics.topic import Topic

topics_app = typer.Typer(
    help="Create, advertise, find, grant and revoke topics; see docs/topics.md.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

CONNECT_S = 10.0
LOCATE_TRIES = 3
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Id, UUID or completed synopsis of a topic.")]
Within = Annotated[float, typer.Option("--within", min=0.001, max=3600, help="Seconds to wait for answers.")]
Nodes = Annotated[
    list[str] | None,
    typer.Option("--tdn", metavar="NAME", help="This discovery node; repeatable. All by default."),
]


@topics_app.command()
@with_settings()
def create(
    settings: Settings,
    synopsis: Annotated[str, typer.Argument(help="Placeholder of the synopsis, such as air/radar/nyc.")],
    synopsis_type: Annotated[
        str, typer.Option("--type", help="Of the synopsis: string, tags, integer or properties.")
    ] = "string",
    lifetime: Annotated[float, typer.Option("--lifetime", help="Seconds until the topic ends.")] = 86_400.0,
    institution: Annotated[str, typer.Option("--institution", help="Whom the creator belongs to.")] = "",
    path: Annotated[
        list[str] | None, typer.Option("--path", help="Descriptor: a hierarchical text; repeatable.")
    ] = None,
    text: Annotated[str, typer.Option("--text", help="Descriptor: prose and keywords.")] = "",
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="Descriptor: JSON or text; repeatable."),
    ] = None,
    xml: Annotated[
        Path | None, typer.Option("--xml", help="Descriptor: a file with an XML document.")
    ] = None,
    restricted: Annotated[bool, typer.Option("--restricted", help="Only for holders of grants.")] = False,
    sealed: Annotated[bool, typer.Option("--sealed", help="Restricted, and relays cannot read it.")] = False,
    discoverer: Annotated[
        list[str] | None, typer.Option("--discoverer", metavar="NAME", help="Who may find it; repeatable.")
    ] = None,
    tdn: Nodes = None,
    within: Within = 5.0,
    as_json: AsJson = False,
) -> int:
    """Create a topic: the discovery node that answers first makes its UUID; all, or --tdn, keep it."""
    document = _read_text(xml) if xml is not None else ""
    described = dict(map(_property, properties or ()))

    async def work(peer: Peer) -> dict[str, Any]:
        topic = await peer.create_topic(
            synopsis,
            synopsis_type=synopsis_type,
            lifetime=lifetime,
            institution=institution,
            paths=path or (),
            text=text,
            properties=described,
            xml=document,
            restricted=restricted or sealed,
            sealed=sealed,
            discoverers=discoverer or (),
            tdn=tdn[0] if tdn else None,
            tdns=tdn,
            within=within,
        )
        return topic.as_dict()

    return _run(settings, work, as_json)


@topics_app.command()
@with_settings()
def advertise(
    settings: Settings, topic: TopicName, tdn: Nodes = None, within: Within = 5.0, as_json: AsJson = False
) -> int:
    """Give a topic to discovery nodes again: to all that answer, or to --tdn."""

    async def work(peer: Peer) -> dict[str, Any]:
        found = await _resolved(peer, topic, within)
        return {"id": found.id, "kept": await found.advertise(tdn)}

    return _run(settings, work, as_json)


@topics_app.command()
@with_settings()
def find(
    settings: Settings,
    query: Annotated[str, typer.Argument(help="What to look for; every topic by default.")] = "",
    by: Annotated[
        str, typer.Option("--by", help="string, regex, sql (over properties) or xpath (over XML).")
    ] = "string",
    created_after: Annotated[float, typer.Option("--created-after", help="Seconds since 1970.")] = 0.0,
    created_before: Annotated[float, typer.Option("--created-before", help="Seconds since 1970.")] = 0.0,
    expires_after: Annotated[float, typer.Option("--expires-after", help="Seconds since 1970.")] = 0.0,
    expires_before: Annotated[float, typer.Option("--expires-before", help="Seconds since 1970.")] = 0.0,
    lasts_at_least: Annotated[float, typer.Option("--lasts-at-least", help="Seconds.")] = 0.0,
    lasts_at_most: Annotated[float, typer.Option("--lasts-at-most", help="Seconds.")] = 0.0,
    limit: Annotated[int, typer.Option("--limit", help="Topics at most.")] = 1000,
    tdn: Nodes = None,
    ttl: Annotated[int, typer.Option("--ttl", help="Hops, when no discovery node answers.")] = 16,
    within: Within = 5.0,
    as_json: AsJson = False,
) -> int:
    """Find topics; exit code 1 when there is none. Without a discovery node, creators are asked."""
    try:
        check_query(Query(query, by, limit=limit))
    except QueryError as error:
        raise UsageError(str(error)) from None

    async def work(peer: Peer) -> dict[str, Any]:
        found = await peer.discover(
            query,
            by=by,
            created_after=created_after,
            created_before=created_before,
            expires_after=expires_after,
            expires_before=expires_before,
            lasts_at_least=lasts_at_least,
            lasts_at_most=lasts_at_most,
            limit=limit,
            tdns=tdn,
            ttl=ttl,
            within=within,
        )
        return {
            "topics": [topic.as_dict() for topic in found.topics],
            "answered": list(found.answered),
            "unanswered": list(found.unanswered),
            "partial": found.partial,
            "from_creators": found.from_creators,
        }

    return _run(settings, work, as_json)


@topics_app.command()
@with_settings()
def grant(
    settings: Settings,
    topic: TopicName,
    holder: Annotated[str, typer.Argument(help="Name of the peer that shall hold it.")],
    publish: Annotated[bool, typer.Option("--publish", help="It may publish.")] = False,
    subscribe: Annotated[bool, typer.Option("--subscribe", help="It may subscribe.")] = False,
    hours: Annotated[
        float | None, typer.Option("--hours", help="How long; by default as long as the topic.")
    ] = None,
    delegate: Annotated[int, typer.Option("--delegate", help="How many further links may follow.")] = 0,
    having: Annotated[
        Path | None, typer.Option("--having", help="The grant that this one hands on, as a file.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the grant here, for a holder that is away.")
    ] = None,
    within: Within = 5.0,
    as_json: AsJson = False,
) -> int:
    """Let a peer publish to a restricted topic, subscribe to it, or both; handed to it if it is there."""
    checked_number("--hours", hours, 0.0001, 24 * 3650)
    PeerId.parse(holder)
    if not publish and not subscribe:
        raise UsageError("grant: say what for: --publish, --subscribe or both")

    async def work(peer: Peer) -> dict[str, Any]:
        found = peer.use_grant(having) if having is not None else await _resolved(peer, topic, within)
        until = None if hours is None else time.time() + hours * 3600
        given = await found.grant(
            holder, publish=publish, subscribe=subscribe, until=until, delegate=delegate
        )
        if out is not None:
            write_private(out, given.packed)
        if not given.handed and out is None:
            raise CommandError(
                f"{holder!r} is not there to be handed its grant: give --out FILE, and it the file"
            )
        return {**given.terms, "handed": given.handed, "file": str(out) if out is not None else None}

    return _run(settings, work, as_json)


@topics_app.command()
@with_settings()
def revoke(
    settings: Settings,
    topic: TopicName,
    holder: Annotated[str, typer.Argument(help="Name of the peer whose grants end.")],
    within: Within = 5.0,
    as_json: AsJson = False,
) -> int:
    """Take back what a peer was granted, and what it granted others. For the topic's creator."""
    PeerId.parse(holder)

    async def work(peer: Peer) -> dict[str, Any]:
        found = await _resolved(peer, topic, within)
        return {"id": found.id, "revoked": holder, "told": await found.revoke(holder)}

    return _run(settings, work, as_json)


@topics_app.command()
@with_settings()
def show(
    settings: Settings,
    topic: Annotated[str, typer.Argument(metavar="TOPIC|FILE", help="A topic, or the file of a grant.")],
    within: Within = 5.0,
    as_json: AsJson = False,
) -> int:
    """Show what is advertised about a topic, or what a grant in a file allows."""
    if Path(topic).is_file():
        try:
            handing = handing_decoder.decode(Path(topic).read_bytes())
            _print({"grants": readable(tuple(handing.chain))}, as_json)
        except (ValueError, TrustError) as error:
            raise UsageError(f"{topic}: not a grant ({error})") from None
        return 0

    async def work(peer: Peer) -> dict[str, Any]:
        return (await _resolved(peer, topic, within)).as_dict()

    return _run(settings, work, as_json)


def _run(settings: Settings, work: Callable[[Peer], Awaitable[dict[str, Any]]], as_json: bool) -> int:
    if settings.identity is None:
        raise UsageError("topics need a secured mesh: give --identity PATH (`anabranch keys issue` makes it)")
    endpoint = make_endpoint(settings, "topics")

    async def run() -> int:
        async with endpoint as peer:
            await _join(peer, settings)
            try:
                told = await work(peer)
            except (UsageError, CommandError):
                raise
            except TrustError as error:
                raise UsageError(str(error)) from None
            except AnabranchError as error:
                raise CommandError(str(error)) from None
            _print(told, as_json)
            return 1 if told.get("topics") == [] else 0

    return run_to_end(run(), when_stopped=unfinished)


async def _join(peer: Peer, settings: Settings) -> None:
    """Until the mesh is there and has told who is in it."""
    try:
        await peer.wait_for_links(1, timeout=CONNECT_S)
        neighbours = [str(link["peer"]) for link in peer.report()["links"]]  # type: ignore[attr-defined]
        await peer.wait_for_peers(*neighbours, timeout=CONNECT_S)
    except TimeoutError:
        raise nobody_answered(settings, CONNECT_S) from None
    for _ in range(LOCATE_TRIES):
        if await peer.locate_tdns(first=True):
            return


async def _resolved(peer: Peer, text: str, within: float) -> Topic:
    """The topic that somebody means."""
    known = [each for each in peer.known_topics() if text in (each.id, each.synopsis, each.id.split("-")[0])]
    if known:
        return known[0]
    plain = text.replace("-", "")[:32]
    if len(plain) == 32 and all(each in "0123456789abcdef" for each in plain):
        uuid = "-".join((plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:]))
        found = (await peer.discover(f"uuid = '{uuid}'", by="sql", within=within)).topics
    else:
        found = (await peer.discover(text, within=within)).topics
    exact = [each for each in found if text in (each.id, each.synopsis)] or list(found)
    if len(exact) != 1:
        raise CommandError(f"{text!r}: {len(exact)} topics are found; give the id of one")
    return exact[0]


def _columns(row: dict[str, Any]) -> tuple[str, ...]:
    """A topic, or one link of a grant."""
    if "verbs" in row:
        return row["holder"], row["issuer"], "+".join(row["verbs"]), f"until {when(row['not_after'])}"
    return row["synopsis"], row["creator"]


def _property(text: str) -> tuple[str, Any]:
    name, is_pair, value = text.partition("=")
    if not is_pair:
        raise UsageError(f"--property {text!r}: NAME=VALUE, as in region=north or range=40")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--xml {str(path)!r}: {error.strerror}; name a file that can be read") from None
    except UnicodeDecodeError:
        raise UsageError(f"--xml {str(path)!r}: not UTF-8; save it as UTF-8") from None


def _print(told: dict[str, Any], as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(told) + "\n")
        return
    for key, value in told.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            for each in value:
                sys.stdout.write("\t".join(_columns(each)) + "\n")
        else:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            if key in ("not_before", "not_after"):
                shown = when(value)
            sys.stdout.write(f"{key}: {shown}\n")
