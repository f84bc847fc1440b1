"""Forwarding trees: paths joined, and encoded as the tails of a source route."""

import msgspec

from anabranch.overlay.codec import decode_subtree, encode_subtree, encode_tail
from anabranch.overlay.headers import Subtree, Tail
from anabranch.overlay.paths import Path

Tree = dict[str, "tuple[bool, Tree]"]
"""next peer -> (whether it is a receiver, what follows behind it)."""


def join_paths(paths: list[Path]) -> Tree:
    """One tree out of paths that start at the same peer; a peer is asked to deliver once."""
    root: Tree = {}
    for path in paths:
        level = root
        for peer in path[1:-1]:
            deliver, below = level.get(peer, (False, {}))
            level[peer] = (deliver, below)
            level = below
        _, below = level.get(path[-1], (False, {}))
        level[path[-1]] = (True, below)
    return root


def encode_tree(
    tree: Tree, origin: str, epoch: int, generation: int, via: list[str], copies: int
) -> tuple[tuple[str, bytes], ...]:
    """Next peers, each with the tail for it; `via` ends with the peer where the tree starts."""
    branches = []
    for peer, (deliver, children) in tree.items():
        below = [(name, _encode_subtree(*child)) for name, child in children.items()]
        tail = Tail(origin, epoch, generation, via, deliver, below, copies=copies)
        branches.append((peer, encode_tail(tail)))
    return tuple(branches)


def receivers_in(peer: str, subtree: Subtree) -> tuple[str, ...]:
    """Who shall deliver, at and behind a peer; PeerError when it cannot be read."""
    found: dict[str, None] = {}
    pending = [(peer, subtree)]
    while pending:
        name, below = pending.pop()
        if below.deliver:
            found[name] = None
        pending += [(child, decode_subtree(raw)) for child, raw in below.branches]
    return tuple(sorted(found))


def _encode_subtree(deliver: bool, children: Tree) -> msgspec.Raw:
    return encode_subtree(deliver, [(name, _encode_subtree(*child)) for name, child in children.items()])
