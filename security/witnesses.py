"""Certificates that came with statements: read and checked once each, kept by fingerprint, within a bound."""

from collections.abc import Callable, Iterable

from cryptography.hazmat.primitives.serialization import Encoding

from anabranch.security.certificates import Holder, read_holder
from anabranch.security.errors import TrustError
from anabranch.security.statements import check_statement, named_certificate
from anabranch.security.trust import Trust

WITNESSES_MAX = 4096
"""Certificates kept; the least recently used one goes."""


class Witnesses:
    """Checks statements against the authorities that are trusted at that moment."""

    def __init__(self, trust: Callable[[], Trust], domain: str) -> None:
        self._trust = trust
        self._domain = domain
        self._holders: dict[bytes, Holder] = {}
        self._sound: set[tuple[bytes, str]] = set()
        """(certificate, role): an authority signed it. Its times and its revocation are looked at each
        time."""
        self._sound_for: Trust | None = None

    def meet(self, certificate: bytes) -> Holder:
        """The holder of a certificate that came along; TrustError unless it is one of this domain."""
        holder = read_holder(certificate, "a certificate that came with a statement")
        known = self._holders.get(holder.fingerprint[:16])
        if known is not None:
            return known
        if holder.domain != self._domain:
            raise TrustError("foreign", f"{holder.uri} is not of domain {self._domain!r}")
        if len(self._holders) >= WITNESSES_MAX:
            del self._holders[next(iter(self._holders))]
        self._holders[holder.fingerprint[:16]] = holder
        return holder

    def check(
        self, who: str, purpose: bytes, payload: bytes, signature: bytes, now: float, *, role: str = "peer"
    ) -> float:
        """When `who` stated this, in this role; TrustError unless it did."""
        holder = self.holder(signature)
        if holder.name != who:
            raise TrustError("malformed", f"a statement of {who!r} made by {holder.uri}")
        trust = self._trust()
        if trust is not self._sound_for or len(self._sound) >= 2 * WITNESSES_MAX:
            self._sound.clear()
            self._sound_for = trust
        key = (holder.fingerprint, role)
        made_at = check_statement(
            trust, holder, purpose, payload, signature, now, role, is_sound=key in self._sound
        )
        self._sound.add(key)
        return made_at

    def knows(self, signature: bytes) -> bool:
        """Whether the certificate of a signature is at hand."""
        return named_certificate(signature) in self._holders

    def holder(self, signature: bytes) -> Holder:
        """Who made a signature; TrustError when the certificate is not known."""
        fingerprint = named_certificate(signature)
        holder = self._holders.pop(fingerprint, None)
        if holder is None:
            raise TrustError("malformed", "a statement without the certificate it was made with")
        self._holders[fingerprint] = holder
        return holder

    def certificates(self, signatures: Iterable[bytes]) -> list[bytes]:
        """The certificates of these signatures, each once, to send along with them."""
        found = {holder.fingerprint: holder for each in signatures if (holder := self.holder(each))}
        return [holder.certificate.public_bytes(Encoding.DER) for holder in found.values()]
