"""Bundles of a secured mesh carry proof of their origin at the head of their body: made here, checked here.

Relays pass it on with the body, which they do not read. An open mesh has no `Sealing` at all.
"""

import struct
from collections.abc import Iterable, Sequence

from anabranch.overlay.bundles import joined, parted
from anabranch.overlay.codec import Frame
from anabranch.overlay.counters import Counters
from anabranch.overlay.errors import DropReason, PeerError
from anabranch.overlay.headers import Flag
from anabranch.overlay.identity import Identity
from anabranch.security.signing import UNKNOWN, Signer, Verifier

_STAMP = struct.Struct(">QHI")
"""epoch, flags, deadline µs; then the origin's name."""
Moment = tuple[int, int]
"""Epoch and number of a seal: with each start numbers begin anew."""
COVERED = int(Flag.REQUEST | Flag.REPLY | Flag.ASSURED | Flag.CONFIRMS | Flag.SELECTED | Flag.LETTER)
"""Flags that say what a body is. The others belong to one hop."""
_REQUEST = int(Flag.REQUEST)


class Sealing:
    """Seals what this peer sends, opens what others sent, and knows what may begin."""

    def __init__(
        self, identity: Identity, signer: Signer, verifier: Verifier, counters: Counters, origins_max: int
    ) -> None:
        self._identity = identity
        self._signer = signer
        self._verifier = verifier
        self._counters = counters
        self._origins_max = origins_max
        self._highest: dict[str, Moment] = {}
        """By origin, the latest seal."""
        self._floors: dict[str, Moment] = {}
        """By origin, the latest seal there was when we forgot one of its streams."""

    def seal(
        self, body: Sequence[Frame], receivers: Sequence[str], flags: int, deadline_us: int
    ) -> list[Frame]:
        """A body of ours with its proof for these receivers."""
        me = self._identity
        stamp = _STAMP.pack(me.epoch, flags & COVERED, deadline_us) + me.peer.encode()
        seal = self._signer.seal(stamp, body, receivers, for_everybody=bool(flags & _REQUEST))
        return joined(seal, body)

    def open(
        self,
        origin: str,
        epoch: int,
        body: Sequence[Frame],
        flags: int,
        deadline_us: int,
        neighbour: str,
        for_us: bool,
    ) -> tuple[int, list[Frame]]:
        """The number of a bundle's seal, and its body without it; PeerError when it does not hold."""
        seal, inner = parted(body)
        stamp = _STAMP.pack(epoch, flags & COVERED, deadline_us) + origin.encode()
        number = self._verifier.verify_seal(origin, stamp, inner, seal, for_us=for_us)
        if number <= 0:
            self._verifier.refuse(origin, f"a bundle that {neighbour!r} brought: its seal does not hold")
            raise PeerError(DropReason.UNKNOWN_KEY if number == UNKNOWN else DropReason.FORGED, neighbour)
        known = self._highest.get(origin)
        if known is None or (epoch, number) > known:
            if known is None and len(self._highest) >= self._origins_max:
                gone = next(iter(self._highest))
                del self._highest[gone]
                self._floors.pop(gone, None)
            self._highest[origin] = (epoch, number)
        return number, inner

    def vouch(self, receiver: str, part: bytes) -> bytes:
        """Proof for a receiver that we said this, whoever brings it; empty when its key is not known."""
        return self._signer.vouch(receiver, part)

    def is_vouched(self, origin: str, part: bytes, proof: bytes) -> bool:
        """Whether `origin` said this to us."""
        return self._verifier.verify_vouched(origin, part, proof)

    def forgot(self, origins: Iterable[str]) -> None:
        """Streams of theirs were forgotten: what they sent until now must not begin them anew."""
        for origin in origins:
            self._floors[origin] = self._highest.get(origin, (0, 0))

    def may_begin(self, origin: str, epoch: int, number: int) -> bool:
        """Whether a stream that we know nothing of may begin with this bundle."""
        floor = self._floors.get(origin)
        return floor is None or (epoch, number) > floor
