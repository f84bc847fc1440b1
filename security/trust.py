"""Whom we trust: authorities, and what they revoked. Checks certificates; keeps no table of peers.

No clock: the time is an argument.
"""

import datetime
from collections.abc import Iterable

from cryptography import x509
from cryptography.x509 import verification

from anabranch.security.certificates import Holder, is_authority, is_signed_by, is_usable_key, when
from anabranch.security.errors import TrustError

SKEW_S = 300.0
"""Clocks of hosts may differ by this much."""
REVOKED_MAX = 100_000
"""Entries of one revocation list."""


class Trust:
    """Authorities of one domain."""

    def __init__(self, authorities: Iterable[x509.Certificate], place: str = "authority") -> None:
        self.authorities = list(authorities)
        if not self.authorities:
            raise TrustError("malformed", f"{place}: no authority; add the certificate that issued the leaf")
        for authority in self.authorities:
            if not is_authority(authority) or not is_usable_key(authority.public_key()):
                raise TrustError(
                    "malformed",
                    f"{place}: {authority.subject.rfc4514_string()} is no authority with a key on P-256",
                )
        self.revoked: frozenset[tuple[bytes, int]] = frozenset()
        """(authority's name, serial)."""
        self.lists: dict[bytes, x509.CertificateRevocationList] = {}
        """The latest list of each authority, by the authority's name."""
        self._store = verification.Store(self.authorities)
        usages = verification.ExtensionPolicy.permit_all().require_present(
            x509.SubjectAlternativeName, verification.Criticality.AGNOSTIC, None
        )
        self._policy = (
            verification.PolicyBuilder()
            .store(self._store)
            .max_chain_depth(0)
            .extension_policies(ca_policy=verification.ExtensionPolicy.webpki_defaults_ca(), ee_policy=usages)
        )

    def check(self, holder: Holder, now: float, *, role: str = "peer", is_sound: bool = False) -> None:
        """TrustError unless an authority vouches for the holder, now, in this role.

        `is_sound`: this very check has shown before that the authority issued it; all the rest is looked at.
        """
        who = f"certificate of {holder.uri}"
        if now < holder.not_before - SKEW_S:
            raise TrustError("early", f"{who} is not valid before {when(holder.not_before)}: check the clock")
        if now > holder.not_after:
            raise TrustError("expired", f"{who} expired at {when(holder.not_after)}: issue a new one")
        if role not in holder.roles:
            raise TrustError("role", f"{who} has the roles {', '.join(sorted(holder.roles))}, not {role}")
        if self.is_revoked(holder):
            raise TrustError("revoked", f"{who} (serial {holder.serial:x}) was revoked")
        if is_sound:
            return
        at = min(max(now, holder.not_before), holder.not_after)
        moment = datetime.datetime.fromtimestamp(at, datetime.UTC)
        try:
            self._policy.time(moment).build_client_verifier().verify(holder.certificate, [])
        except (verification.VerificationError, ValueError) as error:
            raise TrustError("foreign", f"{who} is not from an authority trusted here ({error})") from None

    def is_revoked(self, holder: Holder) -> bool:
        """Whether its authority took it back."""
        return (holder.certificate.issuer.public_bytes(), holder.serial) in self.revoked

    def revoke(self, pem_or_der: bytes, now: float) -> bool:
        """Take a revocation list; whether it was news. TrustError unless it is an authority's own."""
        try:
            is_pem = pem_or_der.lstrip().startswith(b"-----")
            load = x509.load_pem_x509_crl if is_pem else x509.load_der_x509_crl
            revocations = load(pem_or_der)
        except ValueError as error:
            raise TrustError("malformed", f"not a revocation list ({error})") from None
        name = revocations.issuer.public_bytes()
        for authority in self.authorities:
            key = authority.public_key()
            is_signed = is_usable_key(key) and is_signed_by(
                key,  # type: ignore[arg-type]  # narrowed by is_usable_key
                revocations.tbs_certlist_bytes,
                revocations.signature,
            )
            if authority.subject == revocations.issuer and is_signed:
                break
        else:
            raise TrustError("foreign", "a revocation list that no authority trusted here signed")
        if revocations.last_update_utc.timestamp() > now + SKEW_S:
            raise TrustError("early", "a revocation list from the future: check the clock")
        held = self.lists.get(name)
        if held is not None and _order(revocations) <= _order(held):
            return False
        if len(revocations) > REVOKED_MAX:
            raise TrustError("malformed", f"a revocation list of {len(revocations)} entries")
        self.lists[name] = revocations
        self.revoked = frozenset(
            (issuer, entry.serial_number) for issuer, each in self.lists.items() for entry in each
        )
        return True


def _order(revocations: x509.CertificateRevocationList) -> tuple[int, float]:
    """Later lists have larger numbers; without numbers the time decides."""
    try:
        number = revocations.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except x509.ExtensionNotFound:
        number = 0
    return number, revocations.last_update_utc.timestamp()
