"""A peer's identity on disk: found, loaded, checked, and looked at again while the peer runs.

Loads `cryptography` only for a peer that has an identity.
"""

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.errors import UsageError
from anabranch.overlay.identifiers import PeerId

if TYPE_CHECKING:
    from anabranch.security.certificates import Holder
    from anabranch.security.files import IdentityFiles
    from anabranch.transport.shell import Shell

LOOK_INTERVAL_S = 1.0
"""How often the files are looked at for a renewed certificate or a new revocation list."""
WARN_BEFORE_S = 3600.0
REFUSALS_PER_MINUTE_MAX = 30
"""Logged; all are counted."""
_TRUE = ("1", "true", "yes", "on")

log = structlog.get_logger("anabranch")


class MeshIdentity:
    """What a peer of a secured mesh signs and checks with."""

    def __init__(self, place: Path, config: Config) -> None:
        from anabranch.security.credentials import CertificateSigner, CertificateVerifier
        from anabranch.security.errors import TrustError
        from anabranch.security.pairing import Pairing
        from anabranch.security.rights import RightsTable
        from anabranch.security.witnesses import Witnesses

        self.place = place
        self.counters = Counters()
        """Replaced by the node's, once there is one."""
        self._timer: asyncio.TimerHandle | None = None
        self._refusals = 0
        self._refusals_since = 0.0
        self._warned = False
        try:
            files = self._files = self._load()
            self._changed_at = self._newest()
            trust = files.trust(time.time())
            trust.check(files.holder, time.time())
        except TrustError as error:
            raise UsageError(f"identity {str(place)!r}: {error}") from None
        self.name = PeerId.parse(files.holder.name)
        self.domain = files.holder.domain
        pairing = Pairing(self.name, os.urandom(32), config.records_max)
        self.signer = CertificateSigner(_der(files), files.key, time.time, pairing)
        self.verifier = CertificateVerifier(
            trust,
            self.domain,
            time.time,
            pairing,
            record_age_max_s=config.record_lifetime_s,
            peers_max=config.records_max,
            on_refusal=self.refused,
        )
        self.verifier.learn(self.name, self.signer.credential)
        witnesses = Witnesses(lambda: self.verifier.trust, self.domain)
        witnesses.meet(self.signer.credential)
        self.rights = RightsTable(str(self.name), witnesses, time.time, self.refused)
        """Who may use restricted topics."""

    def roles(self) -> frozenset[str]:
        """What the certificate is for."""
        return self._files.holder.roles

    @property
    def holder(self) -> "Holder":
        """Whom the certificate names."""
        return self._files.holder

    def watch(self, shell: "Shell") -> None:
        """Take what changes on disk while the peer runs, now and then."""
        if shell.gate.shut:
            return
        if self.look():
            shell.node.trust_changed(time.monotonic())
            shell.turn()
        self._timer = asyncio.get_running_loop().call_later(LOOK_INTERVAL_S, self.watch, shell)

    def unwatch(self) -> None:
        """The peer closes."""
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> bool:
        """Take what changed on disk; whether something did. What cannot be used is logged, and left."""
        from anabranch.security.errors import TrustError
        from anabranch.security.trust import Trust

        now = time.time()
        if not self._warned and now > self._files.holder.not_after - WARN_BEFORE_S:
            self._warned = True
            log.warning("certificate ends soon: renew it", place=str(self.place), name=str(self.name))
        changed_at = self._newest()
        if changed_at == self._changed_at:
            return False
        self._changed_at = changed_at
        try:
            files = self._load()
            if (files.holder.name, files.holder.domain) != (self.name, self.domain):
                raise TrustError(
                    "malformed", f"it now names {files.holder.uri}, and this peer is {self.name}"
                )
            trust = Trust(files.authorities, str(self.place))
            for each in (*self.verifier.revocations(), files.revocations):
                if each:
                    self._revoke_in(trust, each, now)
            trust.check(files.holder, now)
        except TrustError as error:
            log.warning("identity on disk cannot be used: the former one stays", error=str(error))
            return False
        self._files = files
        self._warned = False
        self.verifier.trust = trust
        self.signer.replace(_der(files), files.key)
        self.verifier.learn(self.name, self.signer.credential)
        log.info("identity taken from disk", name=str(self.name), not_after=int(files.holder.not_after))
        return True

    def _revoke_in(self, trust: "object", revocations: bytes, now: float) -> None:
        from anabranch.security.errors import TrustError
        from anabranch.security.trust import Trust

        assert isinstance(trust, Trust)
        try:
            trust.revoke(revocations, now)
        except TrustError as error:
            log.warning("revocation list refused", error=str(error))

    def _load(self) -> "IdentityFiles":
        from anabranch.security.files import load_identity

        return load_identity(self.place)

    def _newest(self) -> float:
        from anabranch.security.files import newest_change

        return newest_change(self.place)

    def refused(self, who: str, why: str) -> None:
        """Count what was not believed, and log the first of each minute."""
        self.counters.add("refused_credentials")
        now = time.monotonic()
        if now - self._refusals_since > 60:
            self._refusals_since, self._refusals = now, 0
        self._refusals += 1
        if self._refusals <= REFUSALS_PER_MINUTE_MAX:
            log.warning("refused", peer=who[:80], why=why[:300])


def choose_identity(
    peer: str,
    identity: str | Path | None,
    is_open: bool,
    config: Config,
    environ: Mapping[str, str] = os.environ,
) -> MeshIdentity | None:
    """The identity of a peer; None for an open mesh, which has to be asked for.

    Arguments come before `ANABRANCH_IDENTITY` and `ANABRANCH_OPEN`.
    """
    if identity is not None and is_open:
        raise UsageError(
            f"peer {peer!r}: an identity ({str(identity)!r}) and an open mesh: choose one of them"
        )
    if identity is None and not is_open:
        identity = environ.get("ANABRANCH_IDENTITY") or None
        if identity is None and environ.get("ANABRANCH_OPEN", "").lower() not in _TRUE:
            raise UsageError(
                f"peer {peer!r} has no identity: give it one (--identity DIRECTORY, identity='DIRECTORY' or "
                "ANABRANCH_IDENTITY; `anabranch keys issue` makes it), or ask for an open mesh, which "
                "believes everybody (--open, open=True or ANABRANCH_OPEN=1)"
            )
    if identity is None:
        return None
    found = MeshIdentity(Path(identity), config)
    if found.name != peer:
        raise UsageError(
            f"peer {peer!r}: identity {str(identity)!r} names {str(found.name)!r}; use that name, "
            "or issue another identity"
        )
    return found


def say_open(peer: str) -> None:
    """An open mesh says so in the log of a program that has one: structlog's, else Python's own."""
    said = "open mesh: no authentication, no encryption"
    if structlog.is_configured():
        log.warning(said, peer=peer)
    else:
        logging.getLogger("anabranch").info("%s (peer %s)", said, peer)


def _der(files: "IdentityFiles") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return files.holder.certificate.public_bytes(Encoding.DER)
