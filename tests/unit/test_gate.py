"""The gate of a peer: open until closed, the first reason stays, shut in forked children."""

import gc
import os
import weakref

import pytest

from anabranch.overlay.errors import ClosedError
from anabranch.transport import gate as gates
from anabranch.transport.gate import Gate


def test_an_open_gate_lets_pass_and_a_closed_one_tells_why() -> None:
    gate = Gate()
    gate.check()
    assert not gate.shut
    gate.close("peer a is closed")
    gate.close("some other reason")
    assert gate.shut
    with pytest.raises(ClosedError, match=r"^peer a is closed$"):
        gate.check()


def test_a_fork_shuts_every_open_gate_in_the_child_and_none_in_the_parent() -> None:
    first, second, closed = Gate(), Gate(), Gate()
    closed.close("peer c is closed")
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        told = [gate.reason for gate in (first, second, closed)]
        is_right = all("forked" in reason for reason in told[:2]) and told[2] == "peer c is closed"
        is_usable = not Gate().shut
        os.write(writing, b"y" if is_right and is_usable else b"n")
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        assert answers.read() == b"y"
    first.check()
    second.check()


def test_gates_are_not_kept_alive() -> None:
    gate = Gate()
    seen = weakref.ref(gate)
    assert gate in gates._open_gates
    del gate
    gc.collect()
    assert seen() is None


def test_a_closed_gate_is_no_longer_watched() -> None:
    gate = Gate()
    gate.close("closed")
    assert gate not in gates._open_gates
