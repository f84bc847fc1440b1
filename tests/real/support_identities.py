"""Identities for peers on sockets."""

import shutil
import time
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding

from anabranch.security.authority import Authority, key_pem
from anabranch.security.files import write_private, write_public

DOMAIN = "real.example"


class Identities:
    """One authority; `identities["a"]` is the directory of a's identity."""

    def __init__(self, directory: Path, domain: str = DOMAIN) -> None:
        self._directory = directory
        Authority.create(directory / "authority", domain, 10, time.time())

    def __getitem__(self, name: str) -> Path:
        return self.issue(name) if not (self._directory / name).exists() else self._directory / name

    def issue(self, name: str, hours: float = 1.0, *, is_tdn: bool = False) -> Path:
        """Issue, or renew with a new key."""
        authority = self._authority()
        holder, key = authority.issue(name, hours, is_tdn=is_tdn)
        assert key is not None
        place = self._directory / name
        place.mkdir(exist_ok=True)
        write_private(place / "key.pem", key_pem(key))
        write_public(place / "authority.pem", (authority.directory / "authority.pem").read_bytes())
        write_public(place / "certificate.pem", holder.certificate.public_bytes(Encoding.PEM))
        return place

    def revoke(self, name: str, *, tell: str) -> None:
        """Revoke, and put the list where one peer finds it."""
        authority = self._authority()
        authority.revoke(name, 1)
        shutil.copy(authority.revoked, self[tell] / "revoked.pem")

    def _authority(self) -> Authority:
        return Authority(self._directory / "authority", time.time())
