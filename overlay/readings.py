"""What the bodies of records say: decoded, checked, ready for the tables.

The same body comes with each refresh, and in a simulation to every peer: small ones are read once. What is
returned is shared, so nobody may change it.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from anabranch.overlay.addresses import is_dialable
from anabranch.overlay.attributes import Row, sound_attributes
from anabranch.overlay.codec import decode_interests, decode_links, decode_roles, decode_sites
from anabranch.overlay.headers import LinkEntry
from anabranch.overlay.identifiers import is_peer_name
from anabranch.overlay.interests import Interest
from anabranch.overlay.topology import Edges, edges_of

BODIES_MAX = 4096
"""Bodies of each kind that are remembered."""
BODY_MAX_BYTES = 1024
"""Larger ones are read each time."""
ADDRESSES_MAX = 16
SERVICES_MAX = 16

T = TypeVar("T")


def _remembered(read: Callable[[bytes], T]) -> Callable[[bytes], T]:
    known = lru_cache(BODIES_MAX)(read)
    return lambda body: known(body) if len(body) <= BODY_MAX_BYTES else read(body)


@_remembered
def said_links(body: bytes) -> Edges:
    """The links in a LINKS record, without entries that make no sense; PeerError if it cannot be read."""
    return edges_of(entry for entry in decode_links(body) if _is_sane(entry))


@_remembered
def said_interests(body: bytes) -> tuple[Interest, ...]:
    """What an INTERESTS record asks for, its patterns and filters not looked at yet."""
    return tuple(decode_interests(body))


@_remembered
def said_roles(body: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where a ROLES record says that its peer can be dialled, and what that peer does for others."""
    roles = decode_roles(body)
    dialable = tuple(address for address in roles.addresses[:ADDRESSES_MAX] if is_dialable(address))
    return dialable, tuple(roles.services[:SERVICES_MAX])


@_remembered
def said_attributes(body: bytes) -> Row:
    """What a SITES record says that its peer is."""
    return sound_attributes(decode_sites(body))


def _is_sane(entry: LinkEntry) -> bool:
    return (
        is_peer_name(entry.neighbour)
        and 0 <= entry.delay_us < 10**9
        and 0 <= entry.jitter_us < 10**9
        and 0 <= entry.loss_ppm <= 10**6
        and 0 <= entry.availability_ppm <= 10**6
    )
