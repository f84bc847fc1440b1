"""Names of things: peers, links, publishers, subscriptions. Parsed once, at the edge."""

import re
from functools import lru_cache
from typing import NewType

from anabranch.overlay.errors import UsageError

LinkId = NewType("LinkId", int)
"""One connection to a neighbour, numbered by the shell; never reused within a node's life."""

SubscriptionId = NewType("SubscriptionId", int)
"""A local subscription, numbered by the node."""

PEER_NAME_MAX_CHARS = 64
_PEER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class PeerId(str):
    """The name of a peer, unique in its mesh: letters, digits, `.`, `_` and `-`, 64 characters at most."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "PeerId":
        """Check a name that came from a person, a file or the wire; UsageError names what is wrong."""
        if not is_peer_name(text):
            raise UsageError(
                f"peer name {text!r}: use 1 to {PEER_NAME_MAX_CHARS} letters, digits, '.', '_' or '-', "
                "starting with a letter or digit"
            )
        return cls(text)


def is_peer_name(text: str) -> bool:
    """Whether a text from the wire can name a peer."""
    return len(text) <= PEER_NAME_MAX_CHARS and _is_well_formed(text)


@lru_cache(4096)
def _is_well_formed(name: str) -> bool:
    return _PEER_NAME.fullmatch(name) is not None
