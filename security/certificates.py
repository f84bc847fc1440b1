"""Certificates as this project reads them: one URI names the holder, extended key usages name its roles.

Made by `authority.py` or elsewhere (openssl); checked against an authority by `trust.py`.
"""

import datetime
import re
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID

from anabranch.security.errors import TrustError

SCHEME = "anabranch://"
TDN_USAGE = x509.ObjectIdentifier("2.25.224418226331408173953446471204811871723")
"""The extended key usage of a topic discovery node: an arc made from a UUID, which needs no registration."""
CERTIFICATE_MAX_BYTES = 4096
"""A leaf of ours has about 500 B; larger ones are refused before they are read."""
_URI = re.compile(r"anabranch://([A-Za-z0-9][A-Za-z0-9.-]{0,252})/([A-Za-z0-9][A-Za-z0-9._-]{0,63})")

PrivateKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
PublicKey = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey
_ECDSA = ec.ECDSA(hashes.SHA256())
_ECDSA_REPEATABLE = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)


@dataclass(frozen=True, slots=True)
class Holder:
    """Whom a certificate names, as far as its text says: `Trust.check` tells whether that is so."""

    domain: str
    name: str
    roles: frozenset[str]
    """`peer`, and `tdn` for a topic discovery node."""
    serial: int
    not_before: float
    not_after: float
    fingerprint: bytes
    """SHA-256 of the certificate."""
    key: PublicKey = field(repr=False)
    certificate: x509.Certificate = field(repr=False, compare=False)

    @property
    def uri(self) -> str:
        """The name in full."""
        return f"{SCHEME}{self.domain}/{self.name}"


def read_holder(der: bytes, place: str = "certificate") -> Holder:
    """What a leaf certificate says; TrustError unless it names exactly one holder and is no authority."""
    if len(der) > CERTIFICATE_MAX_BYTES:
        raise TrustError("malformed", f"{place}: {len(der)} B, at most {CERTIFICATE_MAX_BYTES}")
    try:
        certificate = x509.load_der_x509_certificate(der)
        return holder_of(certificate, place)
    except (ValueError, TypeError) as error:
        raise TrustError("malformed", f"{place}: not a certificate ({error})") from None


def holder_of(certificate: x509.Certificate, place: str) -> Holder:
    """See `read_holder`."""
    domain, name = _name_of(certificate, place)
    key = certificate.public_key()
    if not is_usable_key(key):
        raise TrustError("malformed", f"{place}: its key must be ECDSA on P-256, or Ed25519")
    assert isinstance(key, ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey)
    if is_authority(certificate):
        raise TrustError("role", f"{place}: it is an authority's, and an authority is no peer: issue a leaf")
    return Holder(
        domain,
        name,
        _roles_of(certificate, place),
        certificate.serial_number,
        certificate.not_valid_before_utc.timestamp(),
        certificate.not_valid_after_utc.timestamp(),
        certificate.fingerprint(hashes.SHA256()),
        key,
        certificate,
    )


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether it may sign others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def is_usable_key(key: object) -> bool:
    """Whether signatures of such a key are made and checked here."""
    is_p256 = isinstance(key, ec.EllipticCurvePublicKey | ec.EllipticCurvePrivateKey) and isinstance(
        key.curve, ec.SECP256R1
    )
    return is_p256 or isinstance(key, ed25519.Ed25519PublicKey | ed25519.Ed25519PrivateKey)


def read_key(pem: bytes, place: str) -> PrivateKey:
    """A private key without a passphrase; TrustError names what is wrong."""
    try:
        key = serialization.load_pem_private_key(pem, None)
    except TypeError:
        raise TrustError("malformed", f"{place}: the key has a passphrase; store it without one") from None
    except ValueError as error:
        raise TrustError("malformed", f"{place}: not a private key in PEM ({error})") from None
    if not is_usable_key(key):
        raise TrustError("malformed", f"{place}: the key must be ECDSA on P-256, or Ed25519")
    assert isinstance(key, ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey)
    return key


def sign_with(key: PrivateKey, data: bytes) -> bytes:
    """The same signature for the same data: simulations repeat, and no random number can be a bad one."""
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key.sign(data, _ECDSA_REPEATABLE)
    return key.sign(data)


def is_signed_by(key: PublicKey, data: bytes, signature: bytes) -> bool:
    """Whether the signature is the key's."""
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, data, _ECDSA)
        else:
            key.verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def when(timestamp: float) -> str:
    """A time for people."""
    return datetime.datetime.fromtimestamp(timestamp, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def read_bytes(path: Path) -> bytes:
    """A file's content; TrustError when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise TrustError("malformed", f"{path}: {error.strerror}") from None


def _name_of(certificate: x509.Certificate, place: str) -> tuple[str, str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        raise TrustError(
            "malformed", f"{place}: no subject alternative name; give it one URI {SCHEME}DOMAIN/NAME"
        ) from None
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    match = _URI.fullmatch(uris[0]) if len(uris) == 1 else None
    if match is None:
        raise TrustError("malformed", f"{place}: names {uris}; exactly one URI {SCHEME}DOMAIN/NAME is needed")
    return match[1], match[2]


def _roles_of(certificate: x509.Certificate, place: str) -> frozenset[str]:
    try:
        usages = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        usages = set()
    if ExtendedKeyUsageOID.CLIENT_AUTH not in usages:
        raise TrustError("role", f"{place}: no extended key usage clientAuth, so its holder is no peer")
    return frozenset({"peer", "tdn"} if TDN_USAGE in usages else {"peer"})
