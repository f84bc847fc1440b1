"""Authorities and identities for tests, with a clock that the test moves."""

from hashlib import sha256
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding

from anabranch.security.authority import Authority
from anabranch.security.certificates import Holder, PrivateKey
from anabranch.security.credentials import CertificateSigner, CertificateVerifier
from anabranch.security.pairing import Pairing
from anabranch.security.trust import Trust

T0 = 1_800_000_000.0
DOMAIN = "test.example"


class Realm:
    """One authority and everybody it vouches for."""

    def __init__(self, directory: Path, domain: str = DOMAIN) -> None:
        self.now = T0
        self.authority = Authority.create(directory, domain, 3650, T0)
        self.issued: dict[str, tuple[Holder, PrivateKey]] = {}
        self.pairings: dict[str, Pairing] = {}

    def clock(self) -> float:
        return self.now

    def issue(self, name: str, hours: float = 24.0, *, is_tdn: bool = False) -> tuple[Holder, PrivateKey]:
        authority = Authority(self.authority.directory, self.now)
        holder, key = authority.issue(name, hours, is_tdn=is_tdn)
        assert key is not None
        self.issued[name] = holder, key
        return holder, key

    def der(self, name: str) -> bytes:
        return self.issued[name][0].certificate.public_bytes(Encoding.DER)

    def signer(self, name: str, hours: float = 24.0) -> CertificateSigner:
        if name not in self.issued:
            self.issue(name, hours)
        return CertificateSigner(self.der(name), self.issued[name][1], self.clock, self.pairing(name))

    def pairing(self, name: str) -> Pairing:
        """The exchange key of a peer, the same for its signer and its verifier."""
        if name not in self.pairings:
            self.pairings[name] = Pairing(name, sha256(name.encode()).digest(), 100)
        return self.pairings[name]

    def verifier(self, name: str = "me", *, peers_max: int = 100) -> CertificateVerifier:
        trust = Trust([self.authority.certificate])
        return CertificateVerifier(
            trust,
            self.authority.domain,
            self.clock,
            self.pairing(name),
            record_age_max_s=200.0,
            peers_max=peers_max,
        )

    def revoke(self, name: str) -> bytes:
        authority = Authority(self.authority.directory, self.now)
        authority.revoke(name, 30)
        return authority.revoked.read_bytes()
