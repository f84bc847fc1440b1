"""Topics and topic patterns: `*` stands for one level, `**` for any number of levels, none included."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from anabranch.overlay.errors import UsageError

TOPIC_MAX_CHARS = 255
TOPIC_MAX_LEVELS = 32

V = TypeVar("V")


def check_topic(text: str) -> str:
    """The topic, if it is one that can be published to; UsageError names what is wrong."""
    _check_levels("topic", text)
    if "*" in text:
        raise UsageError(f"topic {text!r}: '*' is for patterns; publish to a topic without it")
    return text


def check_pattern(text: str) -> str:
    """The pattern, if it is well-formed; UsageError names what is wrong."""
    for level in _check_levels("pattern", text):
        if "*" in level and level not in ("*", "**"):
            raise UsageError(f"pattern {text!r}: '*' or '**' must be a whole level, not {level!r}")
    return text


def matches(pattern: str, topic: str) -> bool:
    """Whether a topic falls under a pattern. The plain definition; `PatternTrie` is the fast form."""
    return _levels_match(pattern.split("/"), topic.split("/"))


class PatternTrie(Generic[V]):
    """Values stored under patterns; `find(topic)` gives those whose pattern matches, each once."""

    def __init__(self) -> None:
        self._root: _Branch[V] = _Branch()
        self._size = 0

    def __len__(self) -> int:
        """Number of stored (pattern, value) pairs."""
        return self._size

    def add(self, pattern: str, value: V) -> None:
        """Store a value; storing the same pair again changes nothing."""
        branch = self._root
        for level in pattern.split("/"):
            branch = branch.children.setdefault(level, _Branch())
        if value not in branch.values:
            branch.values[value] = None
            self._size += 1

    def remove(self, pattern: str, value: V) -> None:
        """Forget a pair; an unknown one changes nothing."""
        way: list[tuple[_Branch[V], str]] = []
        branch = self._root
        for level in pattern.split("/"):
            child = branch.children.get(level)
            if child is None:
                return
            way.append((branch, level))
            branch = child
        if value not in branch.values:
            return
        del branch.values[value]
        self._size -= 1
        for parent, level in reversed(way):
            child = parent.children[level]
            if child.values or child.children:
                break
            del parent.children[level]

    def find(self, topic: str) -> list[V]:
        """The values whose pattern matches, in no particular order, each once."""
        found: dict[V, None] = {}
        levels = topic.split("/")
        visited: set[tuple[int, int]] = set()
        for branch in self._walk(self._root, levels, 0, visited):
            found.update(branch.values)
        return list(found)

    def _walk(
        self, branch: "_Branch[V]", levels: list[str], at: int, visited: set[tuple[int, int]]
    ) -> Iterator["_Branch[V]"]:
        # `visited` keeps patterns with several `**` from being explored more than once per (branch, level).
        if (id(branch), at) in visited:
            return
        visited.add((id(branch), at))
        any_levels = branch.children.get("**")
        if any_levels is not None:
            for skip in range(at, len(levels) + 1):
                yield from self._walk(any_levels, levels, skip, visited)
        if at == len(levels):
            if branch.values:
                yield branch
            return
        for name in (levels[at], "*"):
            child = branch.children.get(name)
            if child is not None:
                yield from self._walk(child, levels, at + 1, visited)


class _Branch(Generic[V]):
    __slots__ = ("children", "values")

    def __init__(self) -> None:
        self.children: dict[str, _Branch[V]] = {}
        self.values: dict[V, None] = {}


def _check_levels(what: str, text: str) -> list[str]:
    if not isinstance(text, str) or not text:
        raise UsageError(f"{what} {text!r}: must be a text such as 'air/radar/nyc'")
    if len(text) > TOPIC_MAX_CHARS:
        raise UsageError(f"{what} {text[:32]!r}… has {len(text)} characters: {TOPIC_MAX_CHARS} at most")
    if not text.isprintable():
        raise UsageError(f"{what} {text!r}: contains characters that cannot be printed")
    levels = text.split("/")
    if len(levels) > TOPIC_MAX_LEVELS:
        raise UsageError(f"{what} {text!r} has {len(levels)} levels: {TOPIC_MAX_LEVELS} at most")
    if "" in levels:
        raise UsageError(f"{what} {text!r}: has an empty level; no leading, trailing or double '/'")
    return levels


def _levels_match(pattern: list[str], topic: list[str]) -> bool:
    # Row by row: reachable[j] says whether the pattern so far can end before topic level j.
    reachable = [True] + [False] * len(topic)
    for level in pattern:
        if level == "**":
            for j in range(1, len(topic) + 1):
                reachable[j] = reachable[j] or reachable[j - 1]
        else:
            for j in range(len(topic), 0, -1):
                reachable[j] = reachable[j - 1] and level in ("*", topic[j - 1])
            reachable[0] = False
    return reachable[-1]
