"""Connections without sockets: what a send looks like, how fast a queue leaves, how long it will take."""

import pytest
import zmq

from anabranch.overlay.bundles import OutBundle
from anabranch.overlay.identifiers import LinkId
from anabranch.transport import connections
from anabranch.transport.connections import Accepted, Connection, Dialled

MORE = zmq.NOBLOCK | zmq.SNDMORE
LAST = zmq.NOBLOCK


class Sent(list[tuple[bytes, int]]):
    """Stands in for ZeroMQ: notes frames, and is full when told so."""

    is_full = False

    def __call__(self, socket: object, frame: bytes, flags: int, copy: bool = True) -> None:
        if self.is_full and (not self or self[-1][1] == LAST):
            raise zmq.Again
        self.append((bytes(frame), flags))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    notes = Sent()
    monkeypatch.setattr(connections, "_backend_send", notes)
    return notes


def dialled() -> Dialled:
    return Dialled("tcp://127.0.0.1:1", None, None, 1000)  # type: ignore[arg-type]


def accepted() -> Accepted:
    return Accepted(LinkId(7), None, b"id", 12, 1000)  # type: ignore[arg-type]


def test_a_dealer_sends_its_frames_as_one_message(sent: Sent) -> None:
    dialled().send([b"a"])
    dialled().send([b"b", b"c", memoryview(b"d")])
    assert sent == [(b"a", LAST), (b"b", MORE), (b"c", MORE), (b"d", LAST)]


def test_a_router_sends_the_routing_id_first(sent: Sent) -> None:
    accepted().send([b"a"])
    accepted().send([b"b", b"c"])
    assert sent == [(b"id", MORE), (b"a", LAST), (b"id", MORE), (b"b", MORE), (b"c", LAST)]


@pytest.mark.parametrize("make", [dialled, accepted])
def test_a_full_socket_says_so_before_anything_was_taken(sent: Sent, make: object) -> None:
    sent.is_full = True
    with pytest.raises(zmq.Again):
        make().send([b"a", b"b"])  # type: ignore[operator]
    assert sent == []


def test_a_dialled_connection_has_no_link_before_it_stands() -> None:
    connection = dialled()
    assert (connection.link, connection.is_open, connection.address) == (0, False, "tcp://127.0.0.1:1")
    assert not connection.closing
    assert connection.blocked_since == 0.0


def queued(*sizes: int) -> Connection:
    connection = Connection(LinkId(1), None, 10**9)  # type: ignore[arg-type]
    for size in sizes:
        assert connection.queue.put_bundle(OutBundle(1, 0.0, 0, b"", [b""], size, 1))
    return connection


def test_the_backlog_is_the_time_until_half_of_what_waits_has_left_at_the_present_rate() -> None:
    connection = queued(1_000_000)
    connection.rate_bytes_s = 2_000_000
    assert connection.backlog_s() == pytest.approx(0.25)
    connection.rate_bytes_s = 0
    assert connection.backlog_s() == pytest.approx(50), "a link that stands still has a long, finite backlog"
    assert queued().backlog_s() == 0


def test_the_rate_follows_what_leaves_and_ignores_idle_time() -> None:
    connection = queued(1)
    connection.rate_bytes_s = 1e8
    now = 1000.0
    connection.note_sent(10**6, now)
    assert connection.rate_bytes_s == 1e8, "the first bytes only start the window"
    for _ in range(2000):
        now += 0.001
        connection.note_sent(1000, now)
    assert connection.rate_bytes_s == pytest.approx(1e6, rel=0.15)
    known = connection.rate_bytes_s
    connection.note_sent(1000, now + 60)
    assert connection.rate_bytes_s == known
