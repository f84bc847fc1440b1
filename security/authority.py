"""A certificate authority in a directory: makes itself, issues, renews and revokes leaf certificates.

Layout: `authority.pem`, `authority.key` (mode 0600), `issued.jsonl`, `revoked.pem`. For `anabranch keys`.
"""

import contextlib
import datetime
import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from anabranch.security.certificates import (
    SCHEME,
    TDN_USAGE,
    Holder,
    PrivateKey,
    PublicKey,
    holder_of,
    is_usable_key,
    read_bytes,
    read_key,
)
from anabranch.security.errors import TrustError
from anabranch.security.files import make_directory, write_private, write_public

T = TypeVar("T")

BACKDATE_S = 60
"""Certificates begin so long before they are made: clocks of hosts differ."""
_DOMAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Authority:
    """The authority of one domain."""

    def __init__(self, directory: Path, now: float) -> None:
        self.directory = directory
        self._now = now
        if not (directory / "authority.pem").exists():
            raise TrustError(
                "malformed", f"{directory} holds no authority: make one with `anabranch keys ca {directory}`"
            )
        self.certificate = _read_pem(directory / "authority.pem", x509.load_pem_x509_certificate)
        key = read_key(read_bytes(directory / "authority.key"), str(directory / "authority.key"))
        if (
            not isinstance(key, ec.EllipticCurvePrivateKey)
            or key.public_key() != self.certificate.public_key()
        ):
            raise TrustError(
                "malformed", f"{directory}: authority.key is not the key of authority.pem, on P-256"
            )
        self._key = key
        common = self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        if not common:
            raise TrustError("malformed", f"{directory}: authority.pem names no domain (CN)")
        self.domain = str(common[0].value)

    @classmethod
    def create(cls, directory: Path, domain: str, days: float, now: float) -> "Authority":
        """A new authority in a directory that holds none."""
        if not _DOMAIN.fullmatch(domain):
            raise TrustError("malformed", f"domain {domain!r}: use letters, digits, '.' and '-'")
        if (directory / "authority.pem").exists() or (directory / "authority.key").exists():
            raise TrustError("malformed", f"{directory} holds an authority already: choose another directory")
        make_directory(directory)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, domain)])
        usage = {name: name in ("key_cert_sign", "crl_sign") for name in _KEY_USAGES}
        certificate = (
            _builder(subject, subject, key.public_key(), now, days * 86400)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        write_private(directory / "authority.key", key_pem(key))
        write_public(directory / "authority.pem", certificate.public_bytes(serialization.Encoding.PEM))
        return cls(directory, now)

    def issue(
        self, name: str, hours: float, *, is_tdn: bool = False, public_key: PublicKey | None = None
    ) -> tuple[Holder, PrivateKey | None]:
        """A leaf certificate; for a key of its own making, which is returned, unless one is given."""
        if not _NAME.fullmatch(name):
            raise TrustError(
                "malformed",
                f"name {name!r}: 1 to 64 letters, digits, '.', '_' or '-', first a letter or digit",
            )
        made = None if public_key is not None else ec.generate_private_key(ec.SECP256R1())
        key = public_key or made.public_key()  # type: ignore[union-attr]  # one of them is there
        if not is_usable_key(key):
            raise TrustError("malformed", f"key of {name!r}: must be ECDSA on P-256, or Ed25519")
        ends = self.certificate.not_valid_after_utc.timestamp()
        if self._now + hours * 3600 > ends:
            raise TrustError(
                "expired", f"{hours:g} hours: the authority itself ends {_iso(ends)}; issue for less"
            )
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([TDN_USAGE] if is_tdn else [])]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        uri = f"{SCHEME}{self.domain}/{name}"
        usage = {each: each == "digital_signature" for each in _KEY_USAGES}
        authority_key = self.certificate.public_key()
        assert isinstance(authority_key, ec.EllipticCurvePublicKey)
        certificate = (
            _builder(self.certificate.subject, subject, key, self._now, hours * 3600)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        holder = holder_of(certificate, uri)
        entry = {
            "name": name,
            "serial": f"{holder.serial:x}",
            "roles": sorted(holder.roles),
            "not_after": _iso(holder.not_after),
        }
        with self._locked(), (self.directory / "issued.jsonl").open("a") as book:
            book.write(json.dumps(entry) + "\n")
        return holder, made

    def issued(self) -> list[dict[str, object]]:
        """Every certificate it made, the oldest first."""
        try:
            lines = (self.directory / "issued.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        try:
            return [json.loads(line) for line in lines if line.strip()]
        except ValueError:
            raise TrustError(
                "malformed", f"{self.directory}/issued.jsonl: not one JSON object per line; mend it by hand"
            ) from None

    def revoke(self, wanted: str, days: float) -> list[str]:
        """Take back what a name, or a serial, was issued; the serials. Renews the list in any case."""
        with self._locked():
            issued = self.issued()
            serials = [str(each["serial"]) for each in issued if wanted in (each["name"], each["serial"])]
            if not serials:
                raise TrustError(
                    "malformed",
                    f"{wanted!r} was not issued here: `anabranch keys show {self.directory}` lists",
                )
            held = self._list()
            known = {entry.serial_number for entry in held} if held is not None else set()
            builder = (
                x509.CertificateRevocationListBuilder()
                .issuer_name(self.certificate.subject)
                .last_update(_moment(self._now))
                .next_update(_moment(self._now + days * 86400))
                .add_extension(x509.CRLNumber(self._number(held) + 1), critical=False)
            )
            for entry in held or ():
                builder = builder.add_revoked_certificate(entry)
            fresh = [each for each in serials if int(each, 16) not in known]
            for serial in fresh:
                builder = builder.add_revoked_certificate(
                    x509.RevokedCertificateBuilder()
                    .serial_number(int(serial, 16))
                    .revocation_date(_moment(self._now))
                    .build()
                )
            revocations = builder.sign(self._key, hashes.SHA256())
            write_public(self.revoked, revocations.public_bytes(serialization.Encoding.PEM))
        return serials

    @property
    def revoked(self) -> Path:
        """The revocation list; there is none before the first revocation."""
        return self.directory / "revoked.pem"

    def revoked_serials(self) -> set[str]:
        """What was taken back."""
        return {f"{entry.serial_number:x}" for entry in self._list() or ()}

    def _list(self) -> x509.CertificateRevocationList | None:
        return _read_pem(self.revoked, x509.load_pem_x509_crl) if self.revoked.exists() else None

    def _number(self, held: x509.CertificateRevocationList | None) -> int:
        if held is None:
            return 0
        return held.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Two commands at once must not lose each other's entries."""
        with (self.directory / "issued.jsonl").open("a") as book:
            fcntl.flock(book, fcntl.LOCK_EX)
            yield


def _read_pem(path: Path, load: Callable[[bytes], T]) -> T:
    try:
        return load(read_bytes(path))
    except ValueError:
        raise TrustError("malformed", f"{path}: not what this file should hold in PEM") from None


def read_request(pem: bytes, place: str) -> PublicKey:
    """The public key of a certificate signing request whose own signature holds."""
    try:
        request = x509.load_pem_x509_csr(pem)
        is_sound = request.is_signature_valid
    except ValueError as error:
        raise TrustError("malformed", f"{place}: not a signing request in PEM ({error})") from None
    key = request.public_key()
    if not is_sound or not is_usable_key(key):
        raise TrustError("malformed", f"{place}: needs a sound signature and a key on P-256, or Ed25519")
    return key  # type: ignore[return-value]  # narrowed by is_usable_key


def key_pem(key: PrivateKey) -> bytes:
    """A private key as its file holds it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


_KEY_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def _builder(
    issuer: x509.Name, subject: x509.Name, key: PublicKey, now: float, seconds: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key)
        .serial_number(int.from_bytes(os.urandom(16), "big") >> 1 or 1)
        .not_valid_before(_moment(now - BACKDATE_S))
        .not_valid_after(_moment(now + seconds))
    )


def _moment(timestamp: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(timestamp, datetime.UTC)


def _iso(timestamp: float) -> str:
    return _moment(timestamp).strftime("%Y-%m-%dT%H:%M:%SZ")
