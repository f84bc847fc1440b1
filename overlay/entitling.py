"""Records of rights to restricted topics: our own told, those of others taken, judged again on revocation.

Part of telling, which knows when.
"""

from anabranch.overlay.actions import Action
from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.errors import DropReason, PeerError
from anabranch.overlay.headers import Record, RecordKind
from anabranch.overlay.interests import Interests
from anabranch.overlay.spreading import Spreading
from anabranch.security.entitlement import Rights


class Entitling:
    """Between the table of rights and the record book."""

    def __init__(self, config: Config, rights: Rights, interests: Interests, spreading: Spreading) -> None:
        self._config = config
        self._rights = rights
        self._version = rights.version
        self._interests = interests
        self._spreading = spreading

    def tell(self, now: float) -> list[Action]:
        """Tell which rights we hold, and which were revoked."""
        body = self._rights.shown()
        if not body or len(body) > self._config.record_body_max_bytes:  # bounded below the default already
            return []
        return self._spreading.originate(RecordKind.RIGHTS, body, now)

    def take(self, record: Record) -> None:
        """What another peer shows; PeerError when it does not hold."""
        if not self._rights.take(record.origin, record.body):
            raise PeerError(DropReason.DENIED, "rights")

    def forget(self, origin: str) -> None:
        """Its record is gone."""
        self._rights.forget(origin)

    def judge_again(self, me: str, counters: Counters) -> None:
        """A certificate was revoked: what rests on it holds no more."""
        self._rights.distrust()
        for record in self._spreading.book:
            if record.kind == RecordKind.RIGHTS and record.origin != me:
                try:
                    self.take(record)
                except PeerError as error:
                    counters.drop(error.reason)

    def has_changed(self) -> bool:
        """Whether rights changed since this was asked last: who wants what has to be looked up again."""
        if self._rights.version == self._version:
            return False
        self._version = self._rights.version
        self._interests.version += 1
        return True
