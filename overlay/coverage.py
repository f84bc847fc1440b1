"""Parts of a harvest that cover disjoint sets of sites: nothing is counted twice. Knows no merging."""

import msgspec

from anabranch.overlay.codec import decode_value


class Part(msgspec.Struct):
    """Everything that some sites replied."""

    mask: int
    """The sites."""
    answered: int
    declined: int
    state: object = msgspec.UNSET
    """The answers, merged: decoded, or as they travel. Unset where they are kept one by one."""

    @property
    def is_merged(self) -> bool:
        """Whether its state holds answers; it means nothing where nobody gave any."""
        return self.answered > 0 and self.state is not msgspec.UNSET


class Coverage:
    """Takes a part unless some of its sites are covered already. A part that holds all that it overlaps, and
    more, takes its place: a merged part cannot be taken apart again."""

    def __init__(self) -> None:
        self.mask = 0
        self.parts: list[Part] = []

    def offer(self, part: Part) -> bool:
        """Whether it was taken."""
        if not part.mask:
            return False
        if self.mask & part.mask:
            overlapping = [known for known in self.parts if known.mask & part.mask]
            union = 0
            for known in overlapping:
                union |= known.mask
            if union & ~part.mask or union == part.mask:
                return False
            self.parts = [known for known in self.parts if not known.mask & part.mask]
        self.parts.append(part)
        self.mask |= part.mask
        return True

    @property
    def answered(self) -> int:
        """Replies in all parts."""
        return sum(part.answered for part in self.parts)

    @property
    def declined(self) -> int:
        """Subscribers that declined."""
        return sum(part.declined for part in self.parts)

    def check_invariants(self) -> None:
        """No site is in two parts."""
        seen = 0
        for part in self.parts:
            assert not seen & part.mask
            seen |= part.mask
        assert not seen & ~self.mask


def state_of(part: Part) -> object:
    """The state of a part, decoded; PeerError when it cannot be."""
    return decode_value(memoryview(part.state)) if isinstance(part.state, msgspec.Raw) else part.state
