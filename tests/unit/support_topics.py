"""Topics, grants and their holders for tests."""

from pathlib import Path

from support_trust import Realm

from anabranch.security import advertisements, grants
from anabranch.security.advertisements import Advertisement
from anabranch.security.grants import Chain
from anabranch.security.rights import RightsTable
from anabranch.security.synopses import Descriptors
from anabranch.security.witnesses import Witnesses


class TopicRealm(Realm):
    """An authority, a discovery node `tdn`, and whoever is named."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.issue("tdn", is_tdn=True)
        self.witnesses = self.new_witnesses()

    def new_witnesses(self, *names: str) -> Witnesses:
        trust = self.verifier().trust
        found = Witnesses(lambda: trust, self.authority.domain)
        for name in names:
            found.meet(self.der(name))
        return found

    def name(self, *names: str) -> None:
        for name in names:
            self.signer(name)
            self.witnesses.meet(self.der(name))

    def topic(
        self, creator: str = "owner", placeholder: str = "air/radar/nyc", **terms: object
    ) -> Advertisement:
        self.name(creator, "tdn")
        asked = {
            "synopsis_type": "string",
            "institution": "Observatory",
            "restricted": True,
            "sealed": False,
            "discoverers": (),
            "lifetime_s": 3600.0,
            "descriptors": Descriptors(text="plots of a radar"),
        } | terms
        descriptors = asked.pop("descriptors")
        assert isinstance(descriptors, Descriptors)
        holder = self.issued[creator][0]
        wanted, encoded = advertisements.make_terms(holder, placeholder, descriptors, **asked)  # type: ignore[arg-type]
        minted = advertisements.mint(wanted, encoded, "tdn", self.signer("tdn").sign_as, self.now)
        return advertisements.accept(
            minted, wanted, "tdn", self.witnesses, self.signer(creator).sign_as, self.now
        )

    def grant(
        self,
        topic: Advertisement,
        issuer: str,
        holder: str,
        verbs: int = grants.PUBLISH | grants.SUBSCRIBE,
        *,
        span: tuple[float, float] = (0.0, 1000.0),
        depth: int = 0,
        parent: Chain = (),
    ) -> Chain:
        self.name(issuer, holder)
        return grants.issue(
            topic.id,
            issuer,
            holder,
            self.signer(issuer).sign_as,
            verbs=verbs,
            not_before=self.now + span[0],
            not_after=self.now + span[1],
            depth=depth,
            parent=parent,
        )

    def table(self, me: str) -> RightsTable:
        self.name(me)
        return RightsTable(me, self.new_witnesses(*self.issued), self.clock)
