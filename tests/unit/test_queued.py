"""Bytes of a publisher with a limit: what its account says is what waits, whatever becomes of its bundles."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.bundles import OutBundle, Queued
from anabranch.overlay.queues import LinkQueue

BYTES_MAX = 1000
PUTS = st.tuples(
    st.integers(0, 1), st.integers(0, 2), st.integers(1, 600), st.sampled_from([0, 0, 900, 5000])
)
"""Which queue, whose (2: nobody's), its size, its deadline in µs."""
STEPS = st.lists(st.one_of(PUTS, st.sampled_from(["send", "send", "send", "clear", "take"])), max_size=40)


@given(STEPS)
def test_accounts_agree_with_what_waits(steps: list[tuple[int, int, int, int] | str]) -> None:
    queues = [LinkQueue(BYTES_MAX), LinkQueue(BYTES_MAX)]
    owners = [Queued(1), Queued(1), None]
    for step in steps:
        if isinstance(step, tuple):
            at, whose, size, deadline_us = step
            bundle = OutBundle(1, 0.0, deadline_us, b"t", [b"body"], size, 1, owner=owners[whose])
            queues[at].put_bundle(bundle)
        elif step == "clear":
            queues[0].clear()
        elif step == "take":
            queues[1].take_bundles(lambda bundle: bundle.size % 2 == 0)
        else:
            for queue in queues:
                if queue.peek(0.0) is not None:
                    queue.advance()
        waiting = [
            bundle for queue in queues for deque in (queue._bulk, *queue._urgent.values()) for bundle in deque
        ]
        for owner in owners[:2]:
            assert owner is not None
            assert owner.bytes == sum(bundle.size for bundle in waiting if bundle.owner is owner)
