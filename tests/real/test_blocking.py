"""The blocking API: threads on both sides, back pressure, errors to the caller, and every way to close."""

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from anabranch import ClosedError, Config, Message, UsageError, _crossing
from anabranch.blocking import Client, Peer

PATIENCE_S = 20.0


@pytest.fixture
def pair() -> Iterator[tuple[Peer, Peer]]:
    """Two peers with a link."""
    with Peer("a", listen="tcp://127.0.0.1:0") as a, Peer("b", join=a.addresses) as b:
        yield a, b


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run it in several threads at once; what one of them raises is raised here."""
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


class Held:
    """Keeps a peer's event loop busy, so that nothing is taken from the hand-over."""

    def __init__(self, peer: Peer) -> None:
        self._go_on = threading.Event()
        self._thread = peer._thread

    def __enter__(self) -> "Held":
        held = threading.Event()

        def hold() -> None:
            held.set()
            self._go_on.wait(PATIENCE_S)

        self._thread.soon(hold)
        assert held.wait(PATIENCE_S)
        return self

    def __exit__(self, *error: object) -> None:
        self._go_on.set()


def test_what_one_thread_puts_is_read_in_order_by_another_peer(pair: tuple[Peer, Peer]) -> None:
    a, b = pair
    with a.subscribe("n/*") as numbers, b.publisher("n/x", deadline=10.0) as publisher:
        b.wait_for_subscribers("n/x", timeout=PATIENCE_S)
        for number in range(20_000):
            publisher.put(number)
        messages = [numbers.receive(PATIENCE_S) for _ in range(20_000)]
    assert [message.payload for message in messages] == list(range(20_000))
    first = messages[0]
    assert isinstance(first, Message)
    assert (first.topic, first.origin, first.path, first.late) == ("n/x", "b", ("b", "a"), False)
    assert b.counters["published"] == 20_000


def test_one_publisher_serves_several_threads_and_keeps_the_order_of_each(pair: tuple[Peer, Peer]) -> None:
    a, b = pair
    with a.subscribe("n") as numbers:
        b.wait_for_subscribers("n", timeout=PATIENCE_S)
        publisher = b.publisher("n")
        in_threads(4, lambda thread: [publisher.put((thread, number)) for number in range(3000)] and None)
        got = [numbers.receive(PATIENCE_S).payload for _ in range(12_000)]
    for thread in range(4):
        assert [number for who, number in got if who == thread] == list(range(3000))  # type: ignore[misc]


def test_several_threads_share_a_subscription_and_each_message_goes_to_one(pair: tuple[Peer, Peer]) -> None:
    a, b = pair
    numbers = a.subscribe("n")
    b.wait_for_subscribers("n", timeout=PATIENCE_S)
    seen: Counter[object] = Counter()
    lock = threading.Lock()

    def work(thread: int) -> None:
        if thread == 0:
            for number in range(5000):
                b.put("n", number)
            return
        for message in numbers:
            with lock:
                seen[message.payload] += 1
                if len(seen) == 5000:
                    threading.Thread(target=numbers.close).start()

    in_threads(4, work)
    assert seen == Counter(range(5000))


def test_put_takes_more_topics_than_it_keeps_publishers_for(pair: tuple[Peer, Peer]) -> None:
    a, b = pair
    with a.subscribe("t/**") as topics:
        b.wait_for_subscribers("t/0", timeout=PATIENCE_S)

        def work(thread: int) -> None:
            for number in range(400):
                b.put(f"t/{number}", thread)

        in_threads(2, work)
        got = Counter(topics.receive(PATIENCE_S).topic for _ in range(800))
    assert got == Counter({f"t/{number}": 2 for number in range(400)})


def test_a_payload_that_cannot_travel_is_the_callers_error() -> None:
    with Peer("a", config=Config(payload_max_bytes=100_000, bundle_max_bytes=50_000)) as peer:
        publisher = peer.publisher("x")
        with pytest.raises(UsageError, match="payload of 100001 B for 'x': payload_max_bytes = 100000"):
            publisher.put(b"x" * 100_001)
        with pytest.raises(UsageError, match="type object cannot be encoded"):
            publisher.put(object())
        with pytest.raises(UsageError, match=r"'\*' is for patterns"):
            peer.put("x/*", b"")
        with pytest.raises(UsageError, match="overflow = 'spill'"):
            peer.publisher("x", overflow="spill")
        peer.report()
        assert peer.counters["dropped.oversized"] == 1
        publisher.put(b"x" * 100_000)


def test_a_mutable_value_is_taken_as_it_is_when_put(pair: tuple[Peer, Peer]) -> None:
    a, b = pair
    with a.subscribe("v") as values, b.publisher("v") as publisher:
        b.wait_for_subscribers("v", timeout=PATIENCE_S)
        value, buffer = {"n": 1}, bytearray(b"one")
        with Held(b):
            publisher.put(value)
            publisher.put(buffer)
            value["n"], buffer[:] = 2, b"two"
        assert [values.receive(PATIENCE_S).payload for _ in range(2)] == [{"n": 1}, b"one"]


def test_put_waits_while_the_handover_is_full_and_nothing_is_lost(
    pair: tuple[Peer, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_crossing, "HANDOVER_MAX_BYTES", 10 * (100 + _crossing.MESSAGE_OVERHEAD_BYTES))
    a, b = pair
    publisher = b.publisher("full")
    put = []

    def work() -> None:
        for number in range(25):
            publisher.put(bytes([number]) * 100)
            put.append(number)

    with a.subscribe("full") as messages:
        b.wait_for_subscribers("full", timeout=PATIENCE_S)
        thread = threading.Thread(target=work, daemon=True)
        with Held(b):
            thread.start()
            _until(lambda: len(put) == 10)
            thread.join(0.1)
            assert len(put) == 10, "the eleventh waits"
        got = [messages.receive(PATIENCE_S).payload for _ in range(25)]
        thread.join(PATIENCE_S)
    assert got == [bytes([number]) * 100 for number in range(25)]
    assert b.counters["dropped.queue_full"] == 0


def test_without_blocking_what_finds_no_room_is_dropped_and_counted(
    pair: tuple[Peer, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_crossing, "HANDOVER_MAX_BYTES", 10 * (100 + _crossing.MESSAGE_OVERHEAD_BYTES))
    a, b = pair
    publisher = b.publisher("full", overflow="drop_newest")
    with a.subscribe("full") as messages:
        b.wait_for_subscribers("full", timeout=PATIENCE_S)
        with Held(b):
            for number in range(25):
                publisher.put(bytes([number]) * 100)
        got = [messages.receive(PATIENCE_S).payload[0] for _ in range(10)]  # type: ignore[index]
        publisher.close()
    assert got == list(range(10))
    assert b.counters["dropped.queue_full"] == 15


def test_receiving_has_a_time_limit(pair: tuple[Peer, Peer]) -> None:
    a, b = pair
    with a.subscribe("x") as messages:
        assert messages.receive_nowait() is None
        with pytest.raises(TimeoutError):
            messages.receive(0.02)
        b.wait_for_subscribers("x", timeout=PATIENCE_S)
        b.put("x", 1)
        b.put("x", 2)
        assert messages.receive(PATIENCE_S).payload == 1
        _until(lambda: messages.pending == 1)
        messages.close()
        messages.close()
        assert messages.receive_nowait().payload == 2, "what waited can still be read"  # type: ignore[union-attr]
        with pytest.raises(ClosedError):
            messages.receive(1)
        assert list(messages) == []


def test_a_full_queue_drops_by_its_policy(pair: tuple[Peer, Peer]) -> None:
    a, b = pair
    messages = a.subscribe("x", queue_max=3)
    b.wait_for_subscribers("x", timeout=PATIENCE_S)
    for number in range(10):
        b.put("x", number)
    _until(lambda: messages.dropped == 7)
    assert [messages.receive(1).payload for _ in range(3)] == [7, 8, 9]


def test_callbacks_run_one_at_a_time_in_a_thread_of_their_own_and_may_call_anything(
    pair: tuple[Peer, Peer],
) -> None:
    a, b = pair
    threads = set()

    def echo(message: Message) -> None:
        threads.add(threading.current_thread().name)
        a.put("pong", message.payload)
        a.report()

    with b.subscribe("pong") as pongs, a.subscribe("ping", callback=echo) as pings:
        b.wait_for_subscribers("ping", timeout=PATIENCE_S)
        a.wait_for_subscribers("pong", timeout=PATIENCE_S)
        for number in range(100):
            b.put("ping", number)
        assert [pongs.receive(PATIENCE_S).payload for _ in range(100)] == list(range(100))
        with pytest.raises(UsageError, match="has a callback"):
            pings.receive(0)
        with pytest.raises(UsageError, match="has a callback"):
            iter(pings)
    assert threads == {"callback for ping"}


def test_a_callback_that_raises_is_logged_and_counted_and_goes_on(pair: tuple[Peer, Peer]) -> None:
    a, b = pair
    seen = []

    def fail_on_odd(message: Message) -> None:
        seen.append(message.payload)
        if message.payload % 2:  # type: ignore[operator]
            raise ValueError(f"odd {message.payload}")

    with capture_logs() as logs, a.subscribe("x", callback=fail_on_odd):
        b.wait_for_subscribers("x", timeout=PATIENCE_S)
        for number in range(5):
            b.put("x", number)
        _until(lambda: len(seen) == 5 and a.counters["callback_errors"] == 2)
    failures = [entry for entry in logs if entry["event"] == "callback failed"]
    assert [(entry["pattern"], entry["topic"], entry["log_level"]) for entry in failures] == [
        ("x", "x", "error")
    ] * 2


def test_no_callback_starts_after_close(pair: tuple[Peer, Peer]) -> None:
    a, b = pair
    running, go_on, seen = threading.Event(), threading.Event(), []

    def slow(message: Message) -> None:
        seen.append(message.payload)
        running.set()
        go_on.wait(PATIENCE_S)

    subscription = a.subscribe("x", callback=slow)
    b.wait_for_subscribers("x", timeout=PATIENCE_S)
    for number in range(10):
        b.put("x", number)
    assert running.wait(PATIENCE_S)
    threading.Timer(0.1, go_on.set).start()
    subscription.close()
    assert go_on.is_set(), "close waits for the callback that runs"
    assert seen == [0]


def test_a_coroutine_function_is_no_callback() -> None:
    async def callback(message: Message) -> None: ...

    with Peer("a") as peer, pytest.raises(UsageError, match="coroutine function"):
        peer.subscribe("x", callback=callback)  # type: ignore[arg-type]


def test_a_callback_may_close_its_peer(pair: tuple[Peer, Peer]) -> None:
    a, b = pair
    closed = threading.Event()

    def callback(message: Message) -> None:
        a.close()
        closed.set()

    a.subscribe("x", callback=callback)
    b.wait_for_subscribers("x", timeout=PATIENCE_S)
    b.put("x", 1)
    assert closed.wait(PATIENCE_S)
    with pytest.raises(ClosedError):
        a.report()


def test_closing_from_another_thread_ends_what_waits() -> None:
    with Peer("a", listen="tcp://127.0.0.1:0") as a:
        messages = a.subscribe("x")
        a.put("x", 1)
        got: list[object] = []

        def work(thread: int) -> None:
            if thread == 0:
                got.extend(message.payload for message in messages)
            elif thread == 1:
                with pytest.raises(ClosedError, match="peer a is closed"):
                    a.wait_for_subscribers("nobody")
            else:
                _until(lambda: got == [1])
                a.close()

        in_threads(3, work)
        assert got == [1]
        a.close()


def test_closing_wakes_a_put_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_crossing, "HANDOVER_MAX_BYTES", 1)
    peer = Peer("a")
    peer.open()
    publisher = peer.publisher("x")
    refused = threading.Event()

    def work() -> None:
        publisher.put(b"first")
        try:
            publisher.put(b"second waits")
        except ClosedError:
            refused.set()

    closing = threading.Thread(target=peer.close, daemon=True)
    with Held(peer):
        threading.Thread(target=work, daemon=True).start()
        _until(lambda: publisher._hand_over.__self__._handed_bytes > 0)  # type: ignore[attr-defined]
        closing.start()
        assert refused.wait(PATIENCE_S)
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert peer.counters["published"] == 1, "what had been handed over still left"


def test_what_was_put_leaves_before_the_peer_closes(pair: tuple[Peer, Peer]) -> None:
    a, b = pair
    with a.subscribe("x") as messages:
        b.wait_for_subscribers("x", timeout=PATIENCE_S)
        for number in range(5000):
            b.put("x", number)
        b.close()
        assert [messages.receive(PATIENCE_S).payload for _ in range(5000)] == list(range(5000))


def test_what_had_arrived_can_be_read_after_the_peer_is_closed(pair: tuple[Peer, Peer]) -> None:
    a, b = pair
    messages = a.subscribe("x")
    b.wait_for_subscribers("x", timeout=PATIENCE_S)
    for number in range(6000):
        b.put("x", number)
    _until(lambda: messages.pending == 6000)
    a.close()
    assert [message.payload for message in messages] == list(range(6000))


def test_a_closed_peer_says_so() -> None:
    peer = Peer("a")
    with pytest.raises(ClosedError, match="is not open"):
        peer.report()
    peer.open()
    publisher = peer.publisher("x")
    with pytest.raises(UsageError, match="was opened before"):
        peer.open()
    peer.close()
    peer.close()
    for call in (
        peer.report,
        lambda: publisher.put(b""),
        lambda: peer.put("x", b""),
        lambda: peer.subscribe("x"),
    ):
        with pytest.raises(ClosedError, match="peer a is closed"):
            call()
    publisher.close()
    assert isinstance(peer.counters, dict), "counters can be read to the end"


def test_a_closed_publisher_says_so() -> None:
    with Peer("a") as peer:
        with peer.publisher("x") as publisher:
            publisher.put(b"")
        with pytest.raises(ClosedError, match="publisher of 'x' is closed"):
            publisher.put(b"")
        publisher.close()
        assert peer.counters["published"] == 1


def test_a_peer_that_cannot_open_leaves_no_thread() -> None:
    with Peer("a", listen="tcp://127.0.0.1:0") as a, pytest.raises(UsageError, match="cannot listen"):
        Peer("b", listen=a.addresses).open()
    _until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("loop of")])


def test_a_light_client_has_the_same_api(pair: tuple[Peer, Peer]) -> None:
    a, b = pair
    with Client("c", join=a.addresses) as client, b.subscribe("x") as messages:
        assert client.wait_for_subscribers("x", timeout=PATIENCE_S) == ("b",)
        client.put("x", "from c")
        assert messages.receive(PATIENCE_S).path == ("c", "a", "b")
        assert client.inspect()["peer"] == "a"
        assert client.subscribers("x") == ("b",)


FORGOTTEN = """
import sys, threading, time
from anabranch.blocking import Peer
peer = Peer("forgetful", join=sys.argv[1], log_dir=sys.argv[2])
peer.open()
peer.wait_for_subscribers("last/words", timeout=10)
peer.subscribe("x", callback=print)
def late():
    threading.main_thread().join()
    peer.put("last/words", b"from a thread that outlived main")
threading.Thread(target=late).start()
"""


def test_a_peer_that_was_not_closed_leaves_in_order_when_the_program_ends(tmp_path: Path) -> None:
    with Peer("a", listen="tcp://127.0.0.1:0") as a, a.subscribe("last/words") as words:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", FORGOTTEN, a.addresses[0], str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert words.receive(1).payload == b"from a thread that outlived main"
        _until(lambda: not a.report()["peers"].get("forgetful"))  # type: ignore[attr-defined]
    assert list(tmp_path.glob("forgetful-*.jsonl")), "the log was finished too"


FORKED = """
import os, warnings
warnings.simplefilter("ignore")  # newer Pythons warn of any fork with threads
from anabranch import ClosedError
from anabranch.blocking import Peer
with Peer("a") as peer:
    publisher, subscription = peer.publisher("x"), peer.subscribe("x")
    child = os.fork()
    if child == 0:
        for call in (lambda: publisher.put(b""), peer.report, lambda: subscription.receive(1)):
            try:
                call()
            except ClosedError:
                continue
            os._exit(3)
        peer.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    publisher.put(b"parent")
    assert subscription.receive(5).payload == b"parent"
"""


def test_a_forked_child_is_refused_and_the_parent_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)
