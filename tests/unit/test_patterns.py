"""Topic patterns: the trie finds what the definition says, and the definition is the obvious one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.errors import UsageError
from anabranch.overlay.patterns import (
    TOPIC_MAX_CHARS,
    TOPIC_MAX_LEVELS,
    PatternTrie,
    check_pattern,
    check_topic,
    matches,
)

TOPICS = st.lists(st.sampled_from("abc"), min_size=1, max_size=6).map("/".join)
PATTERNS = st.lists(st.sampled_from(["a", "b", "c", "*", "**"]), min_size=1, max_size=6).map("/".join)
PAIRS = st.tuples(PATTERNS, st.integers(0, 4))


def naive(pattern: list[str], topic: list[str]) -> bool:
    """The definition as one would say it."""
    if not pattern:
        return not topic
    if pattern[0] == "**":
        return any(naive(pattern[1:], topic[skip:]) for skip in range(len(topic) + 1))
    return bool(topic) and pattern[0] in ("*", topic[0]) and naive(pattern[1:], topic[1:])


@given(PATTERNS, TOPICS)
def test_matching_is_the_plain_definition(pattern: str, topic: str) -> None:
    assert matches(pattern, topic) == naive(pattern.split("/"), topic.split("/"))


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("a/*", "a/b", True),
        ("a/*", "a", False),
        ("a/*", "a/b/c", False),
        ("a/**", "a", True),
        ("a/**", "a/b/c", True),
        ("**", "a/b", True),
        ("**/c", "c", True),
        ("a/**/c", "a/c", True),
        ("a/**/c", "a/b/b/c", True),
        ("a/**/c", "a/b/b", False),
        ("*/*", "a", False),
    ],
)
def test_examples_of_the_documentation(pattern: str, topic: str, expected: bool) -> None:
    assert matches(pattern, topic) is expected


@given(st.lists(PAIRS, max_size=20), st.lists(PAIRS, max_size=10), st.lists(TOPICS, min_size=1, max_size=5))
def test_the_trie_finds_what_matches_and_forgets_what_was_removed(
    added: list[tuple[str, int]], removed: list[tuple[str, int]], topics: list[str]
) -> None:
    trie: PatternTrie[int] = PatternTrie()
    model = set(added) - set(removed)
    for pattern, value in added:
        trie.add(pattern, value)
    for pattern, value in removed:
        trie.remove(pattern, value)
    assert len(trie) == len(model)
    for topic in topics:
        found = trie.find(topic)
        assert len(found) == len(set(found))
        assert set(found) == {value for pattern, value in model if matches(pattern, topic)}


@given(st.lists(PAIRS, max_size=20))
def test_an_emptied_trie_keeps_no_branches(pairs: list[tuple[str, int]]) -> None:
    trie: PatternTrie[int] = PatternTrie()
    for pattern, value in pairs:
        trie.add(pattern, value)
    for pattern, value in pairs:
        trie.remove(pattern, value)
    assert len(trie) == 0
    assert not trie._root.children


def test_many_double_stars_are_not_explored_again_and_again() -> None:
    """Exponential without memory of where it has been: 2 ** 32 ways through sixteen `**`."""
    trie: PatternTrie[int] = PatternTrie()
    trie.add("/".join(["**", "a"] * 16), 1)
    trie.add("/".join(["**"] * TOPIC_MAX_LEVELS), 2)
    assert trie.find("/".join(["a"] * 31 + ["b"])) == [2]
    assert sorted(trie.find("/".join(["a"] * 32))) == [1, 2]


@pytest.mark.parametrize(
    "text",
    ["", "/a", "a/", "a//b", "a\nb", "x" * (TOPIC_MAX_CHARS + 1), "/".join("a" * (TOPIC_MAX_LEVELS + 1))],
)
def test_neither_topic_nor_pattern(text: str) -> None:
    for check in (check_topic, check_pattern):
        with pytest.raises(UsageError) as caught:
            check(text)
        assert repr(text)[:20].rstrip("'") in str(caught.value)


@pytest.mark.parametrize("text", ["a", "air/radar/nyc", "ä/ö", "a b", "/".join("a" * TOPIC_MAX_LEVELS)])
def test_a_topic_is_a_pattern_that_matches_itself(text: str) -> None:
    assert check_topic(check_pattern(text)) == text
    assert matches(text, text)


def test_stars_are_for_patterns_and_whole_levels() -> None:
    with pytest.raises(UsageError, match="patterns"):
        check_topic("a/*")
    for text in ("a*", "a/*b", "***", "a/**b"):
        with pytest.raises(UsageError, match="whole level"):
            check_pattern(text)
    assert check_pattern("*/**/a") == "*/**/a"
