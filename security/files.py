"""Files of keys and certificates: who may read them, and what lies where.

An identity is a directory (`certificate.pem`, `key.pem`, `authority.pem`, `revoked.pem`) or one PEM file
with all of that. Replaced whole, so that a reader never sees half a file.
"""

import os
import re
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from anabranch.security.certificates import (
    Holder,
    PrivateKey,
    PublicKey,
    holder_of,
    is_authority,
    read_bytes,
    read_key,
)
from anabranch.security.errors import TrustError
from anabranch.security.trust import Trust

FILE_MAX_BYTES = 8 * 1024 * 1024
NAMES = ("certificate.pem", "key.pem", "authority.pem", "revoked.pem")
_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)


@dataclass(frozen=True)
class IdentityFiles:
    """What an identity on disk holds."""

    place: Path
    holder: Holder
    key: PrivateKey = field(repr=False)
    authorities: list[x509.Certificate]
    revocations: bytes
    """The list as it stands in the file; empty when there is none."""

    def trust(self, now: float) -> Trust:
        """The authorities and what they revoked."""
        trust = Trust(self.authorities, str(self.place))
        if self.revocations:
            trust.revoke(self.revocations, now)
        return trust


def load_identity(place: Path) -> IdentityFiles:
    """An identity from a directory or a file; TrustError names what is missing or wrong."""
    blocks = _blocks(place)
    certificates = [
        x509.load_pem_x509_certificate(block) for label, block in blocks if label == b"CERTIFICATE"
    ]
    keys = [block for label, block in blocks if label.endswith(b"PRIVATE KEY")]
    authorities = [each for each in certificates if is_authority(each)]
    leaves = [each for each in certificates if not is_authority(each)]
    if len(leaves) != 1 or len(keys) != 1:
        raise TrustError(
            "malformed",
            f"{place}: {len(leaves)} leaf certificates and {len(keys)} private keys; an identity has one "
            "each (`anabranch keys issue` makes one)",
        )
    holder = holder_of(leaves[0], str(place))
    key = read_key(keys[0], str(place))
    if _public(key.public_key()) != _public(holder.key):
        raise TrustError("malformed", f"{place}: the private key does not belong to the certificate")
    revocations = b"".join(block + b"\n" for label, block in blocks if label == b"X509 CRL")
    return IdentityFiles(place, holder, key, authorities, revocations)


def newest_change(place: Path) -> float:
    """When something in the identity was written last; 0.0 when it cannot be seen."""
    try:
        paths = [place / name for name in NAMES] if place.is_dir() else [place]
        return max((path.stat().st_mtime for path in paths if path.exists()), default=0.0)
    except OSError:
        return 0.0


def make_directory(path: Path) -> None:
    """A directory for keys, if it is not there yet; only its owner may enter it."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise TrustError(
            "malformed", f"{path}: cannot be made a directory ({error.strerror}): choose another"
        ) from None


def write_private(path: Path, content: bytes) -> None:
    """A file that only its owner can read, from its first byte on."""
    _write(path, content, 0o600)


def write_public(path: Path, content: bytes) -> None:
    """A file that everybody may read."""
    _write(path, content, 0o644)


def _write(path: Path, content: bytes, mode: int) -> None:
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            os.fchmod(descriptor, mode)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise TrustError("malformed", f"{path}: cannot be written: {error.strerror}") from None


def _blocks(place: Path) -> list[tuple[bytes, bytes]]:
    if not place.exists():
        raise TrustError(
            "malformed",
            f"{place}: there is no such file or directory; "
            f"`anabranch keys issue AUTHORITY NAME --out {place}` makes an identity there",
        )
    if place.is_dir():
        paths = [path for name in NAMES if (path := place / name).exists()]
        missing = [name for name in NAMES[:3] if not (place / name).exists()]
        if missing:
            raise TrustError(
                "malformed",
                f"{place}: lacks {', '.join(missing)}, so it is no identity (`anabranch keys issue` makes "
                "one), nor an authority (`anabranch keys ca`)",
            )
    else:
        paths = [place]
    blocks: list[tuple[bytes, bytes]] = []
    for path in paths:
        content = read_bytes(path)
        if len(content) > FILE_MAX_BYTES:
            raise TrustError("malformed", f"{path}: {len(content)} B; that is no identity")
        found = [(match[1], match[0]) for match in _BLOCK.finditer(content)]
        if any(label.endswith(b"PRIVATE KEY") for label, _ in found):
            _check_private(path)
        blocks += found
    if not blocks:
        raise TrustError(
            "malformed", f"{place}: nothing in PEM there; `anabranch keys issue` makes an identity"
        )
    return blocks


def _check_private(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise TrustError(
            "malformed", f"{path}: others can read this private key (mode {mode:04o}): chmod 600 {path}"
        )


def _public(key: PublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
