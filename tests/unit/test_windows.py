from math import inf

import pytest

from anabranch.overlay.bundles import OutBundle
from anabranch.overlay.headers import BUNDLE_HEADER, Flag
from anabranch.overlay.queues import LinkQueue
from anabranch.overlay.windows import (
    ASKS,
    BASE_MEMORY_S,
    FIRST_BYTES,
    LEAST_BYTES,
    MOST_BYTES,
    USUAL_WAIT_S,
    Window,
)

SIZE = 4096
KERNEL_BYTES = 2 * 1024 * 1024
"""What sockets and the kernel take in for a link that carries less."""


class Pipe:
    """A link of a fixed speed behind a window, whose far end acknowledges only what asks for it."""

    def __init__(self, rate_bytes_s: float, round_trip_s: float) -> None:
        self.rate_bytes_s = rate_bytes_s
        self.round_trip_s = round_trip_s
        self.queue = LinkQueue(2**40)
        self.now = 100.0
        self.idle_at = self.now
        self.acks: list[tuple[float, int]] = []
        self.carried = 0
        self.longest_s = 0.0

    @property
    def window(self) -> Window:
        return self.queue._window

    def run(self, seconds: float) -> float:
        """Always something to send; bytes per second that were acknowledged."""
        end, before = self.now + seconds, self.carried
        self.longest_s = 0.0
        while self.now < end:
            self.let_go()
            assert self.acks, "it waits for an acknowledgement that nobody asked for"
            self.now, sequence = self.acks.pop(0)
            assert not self.queue.acknowledged(sequence + 1, 2**64 - 1, self.now)
            self.carried = (sequence + 1) * SIZE
        return (self.carried - before) / seconds

    def let_go(self) -> None:
        while True:
            if not self.queue.bytes:
                self.queue.put_bundle(OutBundle(1, self.now, 0, b"tail", [bytes(SIZE)], SIZE, 1))
            frames = self.queue.peek(self.now)
            if frames is None or (self.idle_at - self.now) * self.rate_bytes_s > KERNEL_BYTES:
                return
            _, _, flags, _, sequence, *_ = BUNDLE_HEADER.unpack_from(frames[0])
            self.idle_at = max(self.idle_at, self.now) + self.queue.advance() / self.rate_bytes_s
            self.longest_s = max(self.longest_s, self.idle_at - self.now)
            if flags & Flag.ACK_SOON:
                self.acks.append((self.idle_at + self.round_trip_s, sequence))


@pytest.mark.parametrize("size", [LEAST_BYTES, FIRST_BYTES])
def test_acknowledgements_are_asked_for_well_before_the_window_is_full(size: int) -> None:
    """Else its sender waits for as long as an acknowledgement may be put off, however quick the link is."""
    pipe = Pipe(1e9, 0.001)
    pipe.window.bytes = size
    pipe.let_go()
    assert len(pipe.acks) >= ASKS - 1
    assert pipe.acks[0][1] < size // SIZE // 2


def test_the_window_keeps_a_fast_link_busy_and_what_waits_before_a_slow_one_short() -> None:
    fast, slow = Pipe(100e6, 0.01), Pipe(2e6, 0.01)
    fast.run(2.0)
    slow.run(2.0)
    assert fast.run(1.0) > 90e6
    assert slow.run(1.0) > 1.8e6
    assert slow.longest_s < 3 * USUAL_WAIT_S


def test_a_link_that_was_slow_gets_its_speed_back() -> None:
    pipe = Pipe(0.5e6, 0.002)
    pipe.run(5.0)
    assert pipe.window.bytes < 2 * LEAST_BYTES
    pipe.rate_bytes_s = 50e6
    pipe.run(1.0)
    assert pipe.run(1.0) > 45e6


def test_a_longer_way_is_learnt_as_such_and_not_taken_for_waiting() -> None:
    pipe = Pipe(20e6, 0.002)
    pipe.run(5.0)
    pipe.round_trip_s = 0.12
    pipe.run(BASE_MEMORY_S)
    assert pipe.run(2.0) > 0.7 * 20e6


def test_a_shorter_way_is_learnt_under_full_load() -> None:
    pipe = Pipe(20e6, 0.12)
    pipe.run(5.0)
    pipe.round_trip_s = 0.002
    pipe.run(2 * BASE_MEMORY_S)
    pipe.run(1.0)
    assert pipe.longest_s < 3 * USUAL_WAIT_S


def test_one_bad_moment_does_not_spoil_the_measure_for_good() -> None:
    pipe = Pipe(20e6, 0.002)
    pipe.run(2.0)
    pipe.window.bytes = LEAST_BYTES
    pipe.window.acknowledged(SIZE, pipe.now - 0.5, pipe.now, True, USUAL_WAIT_S)  # half a second, once
    pipe.run(3 * BASE_MEMORY_S)
    pipe.run(1.0)
    assert pipe.longest_s < 3 * USUAL_WAIT_S


def test_the_window_has_its_limits() -> None:
    window = Window()
    for _ in range(20):
        window.acknowledged(FIRST_BYTES, 1.0, 1.001, True, USUAL_WAIT_S)
    assert window.bytes == MOST_BYTES
    assert window.room_bytes == inf
    for _ in range(20):
        window.acknowledged(MOST_BYTES, 2.0, 3.0, False, USUAL_WAIT_S)
    assert window.bytes >= LEAST_BYTES
    assert window.room_bytes < MOST_BYTES
