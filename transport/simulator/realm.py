"""Identities of a simulated secured mesh: an authority and its certificates, made from the seed alone.

Imports `cryptography`: loaded for secured meshes only.
"""

import datetime
import hashlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from anabranch.overlay.config import Config
from anabranch.security.certificates import SCHEME
from anabranch.security.credentials import CertificateSigner, CertificateVerifier
from anabranch.security.pairing import Pairing
from anabranch.security.trust import Trust
from anabranch.transport.simulator.engine import Engine

DOMAIN = "simulated.mesh"
BEGINS_S = 1_600_000_000
LASTS_S = 10 * 365 * 86_400
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


class Realm:
    """One authority, and everybody it vouches for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._key = self._make_key("authority")
        self.authority = self._certify(DOMAIN, self._key, is_authority=True)
        self._members: dict[str, tuple[bytes, ec.EllipticCurvePrivateKey]] = {}

    def clock(self) -> float:
        """The time by which certificates are judged."""
        return BEGINS_S + self._engine.now

    def pair(
        self, name: str, incarnation: int, config: Config
    ) -> tuple[CertificateSigner, CertificateVerifier]:
        """What a process signs and checks with that starts now."""
        if name not in self._members:
            key = self._make_key(f"peer/{name}")
            self._members[name] = (self._certify(name, key).public_bytes(Encoding.DER), key)
        der, key = self._members[name]
        pairing = Pairing(name, self._digest(f"exchange/{name}/{incarnation}"), config.records_max)
        signer = CertificateSigner(der, key, self.clock, pairing)
        verifier = CertificateVerifier(
            Trust([self.authority]),
            DOMAIN,
            self.clock,
            pairing,
            record_age_max_s=config.record_lifetime_s,
            peers_max=config.records_max,
        )
        verifier.learn(name, der)
        return signer, verifier

    def _digest(self, purpose: str) -> bytes:
        return hashlib.sha256(f"{self._engine.seed}/{purpose}".encode()).digest()

    def _make_key(self, purpose: str) -> ec.EllipticCurvePrivateKey:
        number = int.from_bytes(self._digest(purpose), "big") % (_P256_ORDER - 1) + 1
        return ec.derive_private_key(number, ec.SECP256R1())

    def _certify(
        self, name: str, key: ec.EllipticCurvePrivateKey, *, is_authority: bool = False
    ) -> x509.Certificate:
        begins = datetime.datetime.fromtimestamp(BEGINS_S - 60, datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .issuer_name(_called(DOMAIN))
            .subject_name(_called(name))
            .public_key(key.public_key())
            .serial_number(int.from_bytes(self._digest(f"serial/{name}")[:16], "big") >> 1)
            .not_valid_before(begins)
            .not_valid_after(begins + datetime.timedelta(seconds=LASTS_S))
            .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
            .add_extension(_usage(is_authority), critical=True)
        )
        own_key = self._key.public_key()
        if is_authority:
            builder = builder.add_extension(
                x509.SubjectKeyIdentifier.from_public_key(own_key), critical=False
            )
        else:
            uri = x509.UniformResourceIdentifier(f"{SCHEME}{DOMAIN}/{name}")
            builder = (
                builder.add_extension(
                    x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
                )
                .add_extension(x509.SubjectAlternativeName([uri]), critical=False)
                .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own_key), critical=False)
            )
        return builder.sign(self._key, hashes.SHA256(), ecdsa_deterministic=True)


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )
