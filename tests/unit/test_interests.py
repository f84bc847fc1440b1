"""Who wants what, and the cache in front of it."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.interests import Interests, LocalSubscriptions
from anabranch.overlay.matching import Matching
from anabranch.overlay.patterns import matches
from anabranch.overlay.restricting import Restricting
from anabranch.overlay.selections import Selections
from anabranch.overlay.sites import Sites
from anabranch.security.entitlement import NoRights
from anabranch.security.signing import NullVerifier

TOPICS = ("a", "a/b", "b", "b/c/d")
OPEN = Restricting("me", NoRights(), Counters(), NullVerifier())
PATTERNS = st.sampled_from(["a", "a/*", "**", "b/**", "*", "a/b"])
STEPS = st.lists(st.tuples(st.sampled_from("pqr"), st.frozensets(PATTERNS, max_size=3)), max_size=15)


@given(STEPS)
def test_the_last_announcement_of_each_peer_counts_and_the_cache_never_lies(
    steps: list[tuple[str, frozenset[str]]],
) -> None:
    interests = Interests(Selections(Config()))
    matching = Matching(interests, LocalSubscriptions(), 2, Sites(2), "me", OPEN)
    model: dict[str, frozenset[str]] = {}
    for origin, patterns in steps:
        version = interests.version
        changed = interests.set_patterns(origin, patterns)
        assert changed == (model.get(origin, frozenset()) != patterns)
        assert (interests.version > version) == changed
        model[origin] = patterns
        for topic in TOPICS:
            expected = tuple(sorted(p for p, wants in model.items() if any(matches(w, topic) for w in wants)))
            assert interests.find(topic) == expected
            assert matching.peers(topic) == expected
            assert matching.peers(topic) == expected
        assert len(matching._peers) <= 2
    for origin in model:
        assert interests.patterns_of(origin) == model[origin]


@given(st.lists(PATTERNS | st.integers(1, 10), max_size=20))
def test_local_subscriptions_come_in_the_order_they_were_made(steps: list[str | int]) -> None:
    local = LocalSubscriptions()
    matching = Matching(Interests(Selections(Config())), local, 2, Sites(2), "me", OPEN)
    model: dict[int, str] = {}
    for step in steps:
        if isinstance(step, int):
            local.remove(SubscriptionId(step))
            model.pop(step, None)
        else:
            number = len(model) + 100 + max(model, default=0)
            local.add(SubscriptionId(number), step)
            model[number] = step
        assert len(local) == len(model)
        assert local.patterns() == frozenset(model.values())
        for topic in TOPICS:
            expected = tuple(number for number, pattern in sorted(model.items()) if matches(pattern, topic))
            assert matching.subscriptions(topic) == expected
            assert matching.subscriptions(topic) == expected
        assert len(matching._subscriptions) <= 2


def test_removing_an_unknown_subscription_changes_nothing() -> None:
    local = LocalSubscriptions()
    local.remove(SubscriptionId(7))
    assert local.version == 0
