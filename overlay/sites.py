"""What every site says that it is, and which sites an expression selects. Cached until some site changes."""

from anabranch.overlay.attributes import NO_ATTRIBUTES, Row
from anabranch.overlay.expressions import Expression
from anabranch.overlay.siteindex import SiteIndex


class Sites:
    """Attributes by peer. `version` grows with every change."""

    def __init__(self, cache_max: int) -> None:
        self.version = 0
        self._index = SiteIndex()
        self._cache_max = cache_max
        self._found: dict[Expression, frozenset[str]] = {}
        self._found_version = -1

    @property
    def rows(self) -> dict[str, Row]:
        """The attributes of the sites that declared some. Not to be changed."""
        return self._index.rows

    def of(self, peer: str) -> Row:
        """What a peer said that it is."""
        return self._index.rows.get(peer, NO_ATTRIBUTES)

    def set(self, peer: str, row: Row) -> bool:
        """A peer said what it is; whether that differs from before."""
        if _is_same(self._index.rows.get(peer), row):
            return False
        self._index.set(peer, row)
        self.version += 1
        return True

    def remove(self, peer: str) -> bool:
        """A peer is gone."""
        if peer not in self._index.rows:
            return False
        self._index.remove(peer)
        self.version += 1
        return True

    def among(self, peers: tuple[str, ...], expression: Expression) -> tuple[str, ...]:
        """Those of these peers that an expression selects; one that declared nothing has no attributes."""
        found = self._matching(expression)
        rows = self._index.rows
        if expression.matches(NO_ATTRIBUTES):
            return tuple(peer for peer in peers if peer in found or peer not in rows)
        return tuple(peer for peer in peers if peer in found)

    def _matching(self, expression: Expression) -> frozenset[str]:
        if self._found_version != self.version:
            self._found.clear()
            self._found_version = self.version
        found = self._found.get(expression)
        if found is None:
            if len(self._found) >= self._cache_max:
                del self._found[next(iter(self._found))]
            found = self._found[expression] = self._index.find(expression)
        return found


def _is_same(old: Row | None, new: Row) -> bool:
    """Whether nothing changed; 1 and true are different values although they compare as equal."""
    return old == new and old is not None and all(type(old[name]) is type(new[name]) for name in new)
