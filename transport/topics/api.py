"""Topics as a peer's application uses them: the part of `Peer` that creates and discovers them."""

import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.overlay.errors import UsageError
from anabranch.transport.shell import Shell

if TYPE_CHECKING:
    from anabranch.security.synopses import Value
    from anabranch.transport.identities import MeshIdentity
    from anabranch.transport.peer import Peer
    from anabranch.transport.topics.asking import Located
    from anabranch.transport.topics.office import Found, Office
    from anabranch.transport.topics.policy import Tdn
    from anabranch.transport.topics.topic import Topic

DAY_S = 86_400.0


def tdn_role(peer: str, tdn: "str | Path | Tdn | None", identity: "MeshIdentity | None") -> "Tdn | None":
    """The policy of a discovery node; UsageError where there cannot be one.

    Loads what a peer of a secured mesh needs for topics, so that opening it does not wait for that.
    """
    if identity is not None:
        import_module("anabranch.transport.topics.office")
    if tdn is None:
        return None
    from anabranch.transport.topics.policy import Tdn

    if identity is None:
        place = tdn.store if isinstance(tdn, Tdn) else tdn
        raise UsageError(
            f"peer {peer!r}: tdn={str(place)!r} in an open mesh: a discovery node needs an identity "
            "(`anabranch keys issue --tdn` makes it)"
        )
    return tdn if isinstance(tdn, Tdn) else Tdn(store=tdn)


def open_office(
    peer: "Peer", shell: Shell, identity: "MeshIdentity", tdn: "Tdn | None", store_dir: Path | None
) -> "Office":
    """What a peer of a secured mesh does about topics. Loads its modules only there."""
    from anabranch.transport.topics.office import Office

    return Office(peer, shell, identity, tdn, store_dir)


class Topical:
    """A base of `Peer`."""

    _office: "Office | None" = None

    def _running(self) -> Shell:
        raise NotImplementedError

    async def create_topic(
        self,
        synopsis: "str | int | Mapping[str, Value]",
        *,
        synopsis_type: str = "string",
        lifetime: float = DAY_S,
        institution: str = "",
        paths: Sequence[str] = (),
        text: str = "",
        properties: "Mapping[str, Value] | None" = None,
        xml: str = "",
        restricted: bool = False,
        sealed: bool = False,
        discoverers: Sequence[str] = (),
        tdn: str | None = None,
        tdns: Sequence[str] | None = None,
        within: float = 5.0,
    ) -> "Topic":
        """A new topic: a discovery node makes its UUID and signs, this peer checks, countersigns, advertises.

        `synopsis`: the placeholder: `air/radar/nyc`; with another `synopsis_type`, tags
        (`kind=radar,region=north`), an integer, or properties.
        `lifetime`: seconds. `paths`, `text`, `properties`, `xml`: descriptors, for those who look for it.
        `restricted`: publishing and subscribing need a grant; `sealed`: payloads travel under a key of the
        topic too, so that relays cannot read them. `discoverers`: peers that may find it; all by default.
        `tdn`: the discovery node to ask, by default the one that answers first. `tdns`: those to advertise
        it to, by default all.
        """
        from anabranch.security.synopses import Descriptors

        return await self._topics().create(
            synopsis,
            Descriptors(tuple(paths), text, dict(properties or {}), xml),
            synopsis_type=synopsis_type,
            institution=institution,
            lifetime=lifetime,
            restricted=restricted,
            sealed=sealed,
            discoverers=discoverers,
            tdn=tdn,
            tdns=tdns,
            within=within,
        )

    async def discover(
        self,
        query: str = "",
        *,
        by: str = "string",
        created_after: float = 0.0,
        created_before: float = 0.0,
        expires_after: float = 0.0,
        expires_before: float = 0.0,
        lasts_at_least: float = 0.0,
        lasts_at_most: float = 0.0,
        limit: int = 1000,
        tdns: Sequence[str] | None = None,
        ttl: int = 16,
        within: float = 5.0,
    ) -> "Found":
        """Look for topics at discovery nodes: all that answer, or `tdns`.

        `by`: `string` (a part of synopsis, paths, text, properties), `regex` (the same), `sql` (a condition
        over properties, "region = 'north' and range > 40"), or `xpath` over the XML descriptor.
        Times are seconds since 1970; `lasts_…` are seconds from creation to expiry.
        If no node answers, everybody within `ttl` hops is asked, and creators answer for their own topics.
        """
        from anabranch.transport.topics.query import Query

        asked = Query(
            query,
            by,
            created_after,
            created_before,
            expires_after,
            expires_before,
            lasts_at_least,
            lasts_at_most,
            limit,
        )
        return await self._topics().discover(asked, tdns=tdns, ttl=ttl, within=within)

    async def locate_tdns(self, *, within: float = 0.25, first: bool = False) -> "list[Located]":
        """The discovery nodes that answer within so many seconds, the quickest first; or just that one."""
        return await self._topics().asking.locate(within, is_first_enough=first)

    def use_grant(self, grant: bytes | str | Path) -> "Topic":
        """Use a grant that was made for this peer, as bytes or from a file."""
        from anabranch.security.errors import TrustError
        from anabranch.transport.topics.topic import Topic

        office = self._topics()
        try:
            packed = grant if isinstance(grant, bytes) else Path(grant).read_bytes()
            topic = office.desk.take_over(packed)
        except (TrustError, OSError) as error:
            shown = "" if isinstance(grant, bytes) else f" {str(grant)!r}"
            raise UsageError(f"grant{shown}: {error}") from None
        self._running().turn()
        return Topic(office, topic)

    def known_topics(self) -> "list[Topic]":
        """Topics that this peer created, and restricted ones that it holds rights to."""
        from anabranch.transport.topics.topic import Topic

        desk = self._topics().desk
        desk.rights.expire()
        found = {topic: desk.rights.known[topic] for topic in desk.rights.own}
        if desk.has_store:
            found |= {
                each.id: each for each in desk.store.by_creator(desk.me) if each.is_current(time.time())
            }
        return [Topic(self._topics(), each) for each in found.values()]

    def _topics(self) -> "Office":
        self._running()
        if self._office is None:
            raise UsageError(
                "topics are advertised, granted and found in a secured mesh alone: pass identity='DIRECTORY' "
                "(`anabranch keys issue` makes it)"
            )
        return self._office
