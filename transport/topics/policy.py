"""What a topic discovery node keeps, and whom it answers."""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from anabranch.overlay.errors import UsageError
from anabranch.security.synopses import Descriptors, read_descriptors

if TYPE_CHECKING:
    from anabranch.security.advertisements import Advertisement


class Tdn(msgspec.Struct, frozen=True, kw_only=True):
    """The role of a topic discovery node: where it keeps topics, which, and for whom."""

    store: str | Path
    """A directory."""
    institutions: tuple[str, ...] = ()
    """It keeps topics of these alone; empty: of all. The same for the next two."""
    creators: tuple[str, ...] = ()
    descriptors: tuple[str, ...] = ()
    """Patterns such as `air/*`, one of which a path of the topic's descriptors or its placeholder fits."""
    private: bool = False
    """It is not announced, and answers the peers in `entitled` alone; others hear nothing."""
    entitled: tuple[str, ...] = ()
    topics_max: int = 1_000_000
    """Topics kept; further ones are refused."""

    def __post_init__(self) -> None:
        if self.entitled and not self.private:
            raise UsageError(f"tdn: entitled = {list(self.entitled)}: for a private one; set private=True")

    def answers(self, asker: str) -> bool:
        """Whether a peer gets answers at all."""
        return not self.private or asker in self.entitled

    def keeps(self, topic: "Advertisement") -> bool:
        """Whether a topic belongs here."""
        terms = topic.body.terms
        if self.institutions and terms.institution not in self.institutions:
            return False
        if self.creators and terms.creator not in self.creators:
            return False
        if not self.descriptors:
            return True
        described = read_descriptors(topic.descriptors) if topic.descriptors else Descriptors()
        texts = (terms.placeholder, *described.paths)
        return any(fnmatchcase(text, pattern) for text in texts for pattern in self.descriptors)
