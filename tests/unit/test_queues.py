"""The queue of a link: control, then bundles by urgency, within its bytes; time spent waiting counts."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.bundles import OutBundle
from anabranch.overlay.codec import encode_runs
from anabranch.overlay.headers import BUNDLE_HEADER, MICROSECONDS_MAX, Run
from anabranch.overlay.queues import CONTROL_MAX_BYTES, ONE_FRAME_MAX_BYTES, LinkQueue

BYTES_MAX = 1000
STEPS = st.lists(
    st.one_of(
        st.integers(1, 1500), st.binary(min_size=1, max_size=3), st.sampled_from(["send"] * 3 + ["clear"])
    ),
    max_size=40,
)
"""A bundle of this size, a control frame, or what the shell does."""


def bundle(
    size: int = 100, messages: int = 1, body: bytes = b"body", started_at: float = 0.0, **fields: int
) -> OutBundle:
    return OutBundle(1, started_at, fields.pop("deadline_us", 0), b"tail", [body], size, messages, **fields)


@given(STEPS)
def test_control_overtakes_bundles_keep_order_and_bytes_are_bounded(steps: list[int | bytes | str]) -> None:
    queue = LinkQueue(BYTES_MAX)
    control: deque[bytes] = deque()
    bundles: deque[OutBundle] = deque()
    hops = 0
    for step in steps:
        if isinstance(step, int):
            out = bundle(step, messages=step % 3, body=str(step).encode())
            waiting = sum(waiting.size for waiting in bundles)
            taken = queue.put_bundle(out)
            assert taken == (not bundles or waiting + step <= BYTES_MAX)
            if taken:
                bundles.append(out)
        elif isinstance(step, bytes):
            assert queue.put_control(step)
            control.append(step)
        elif step == "clear":
            assert queue.clear() == (len(bundles), sum(out.messages or 1 for out in bundles))
            control.clear()
            bundles.clear()
        else:
            frames = queue.peek(0.0)
            if control:
                assert frames == [control[0]]
                assert queue.advance() == len(control.popleft())
            elif bundles:
                assert frames is not None
                assert BUNDLE_HEADER.unpack_from(frames[0])[4] == hops
                assert frames[0].endswith(b"tail" + bundles[0].body[0])  # type: ignore[union-attr]
                assert queue.advance() == bundles.popleft().size
                hops += 1
            else:
                assert frames is None
        assert queue.bytes == sum(out.size for out in bundles)
        assert queue.bytes <= max(BYTES_MAX, max((out.size for out in bundles), default=0))
        assert len(queue) == len(control) + len(bundles)


def test_an_empty_queue_takes_a_bundle_of_any_size_and_then_no_other() -> None:
    queue = LinkQueue(BYTES_MAX)
    assert queue.put_bundle(bundle(10 * BYTES_MAX))
    assert not queue.put_bundle(bundle(1))
    queue.advance()
    assert queue.put_bundle(bundle(1))


def test_control_is_bounded_too() -> None:
    queue = LinkQueue(BYTES_MAX)
    frame = bytes(CONTROL_MAX_BYTES // 4)
    assert [queue.put_control(frame) for _ in range(5)] == [True] * 4 + [False]
    queue.advance()
    assert queue.put_control(frame)
    queue.clear()
    assert queue.put_control(frame)


def test_looking_again_changes_nothing_but_the_elapsed_time() -> None:
    queue = LinkQueue(BYTES_MAX)
    queue.put_bundle(bundle(started_at=10.0, deadline_us=7))
    early, late = queue.peek(10.001), queue.peek(10.003)
    assert early is not None
    assert late is not None
    elapsed = [BUNDLE_HEADER.unpack_from(frames[0])[6] for frames in (early, late)]
    assert elapsed == pytest.approx([1000, 3000], abs=1)
    assert BUNDLE_HEADER.unpack_from(early[0])[7] == 7


def test_elapsed_time_is_never_negative_and_saturates() -> None:
    queue = LinkQueue(BYTES_MAX)
    queue.put_bundle(bundle(started_at=10.0))
    for now, expected in ((9.0, 0), (1e7, MICROSECONDS_MAX)):
        frames = queue.peek(now)
        assert frames is not None
        assert BUNDLE_HEADER.unpack_from(frames[0])[6] == expected


def test_a_small_body_shares_the_frame_of_its_header_and_a_large_one_is_not_copied() -> None:
    queue = LinkQueue(10**6)
    for size, frames in ((ONE_FRAME_MAX_BYTES, 1), (ONE_FRAME_MAX_BYTES + 1, 2)):
        body = encode_runs([Run("a", 1, 0, [bytes(size)])])[:size]
        queue.put_bundle(bundle(body=body))
        sent = queue.peek(0.0)
        assert sent is not None
        assert len(sent) == frames
        assert frames == 1 or sent[1] is body
        queue.advance()


def test_relayed_bundles_with_large_payloads_keep_their_frames() -> None:
    queue = LinkQueue(10**6)
    body = [b"small", memoryview(b"large")]
    queue.put_bundle(OutBundle(1, 0.0, 0, b"tail", body, 10, 0))
    sent = queue.peek(0.0)
    assert sent is not None
    assert sent[1:] == body


def test_express_passes_an_empty_queue_only_and_keeps_count_of_hops() -> None:
    queue, usual = LinkQueue(BYTES_MAX), LinkQueue(BYTES_MAX)
    for _ in range(3):
        usual.put_bundle(bundle(started_at=1.0))
        assert queue.express(bundle(started_at=1.0), 1.5) == usual.peek(1.5)
        assert queue.express(bundle(started_at=1.0), 1.5) == usual.peek(1.5), (
            "not sent: the hop is not used up"
        )
        queue.express_sent(bundle(), 1.5)
        usual.advance()
    queue.put_bundle(bundle())
    assert queue.express(bundle(), 1.5) is None
    frames = queue.peek(0.0)
    assert frames is not None
    assert BUNDLE_HEADER.unpack_from(frames[0])[4] == 3
    queue.advance()
    queue.put_control(b"\x01\x03")
    assert queue.express(bundle(), 1.5) is None
