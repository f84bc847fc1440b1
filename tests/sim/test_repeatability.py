"""A seed names a run: the same one happens again, event for event, in any process."""

import hashlib
import os
import subprocess
import sys

import pytest

from anabranch.overlay.config import Config
from anabranch.overlay.errors import UsageError
from anabranch.transport.simulator import BrokenPromiseError, Conditions, Simulator

RUN_ONE = "import runpy, sys; m = runpy.run_path(sys.argv[1]); print(m['busy_mesh'](int(sys.argv[2])))"


def busy_mesh(seed: int) -> str:
    """Everything that could depend on chance or on the order of a set; its fingerprint."""
    records = hashlib.sha256()
    sim = Simulator(seed, on_record=lambda record: records.update(repr(record).encode()))
    names = [f"peer-{number}" for number in range(8)]
    for number, name in enumerate(names):
        sim.add_peer(name, config=Config(neighbours_target=3), seeds=names[max(0, number - 2) : number])
        sim.subscribe(name, f"topic/{number % 3}/*")
    bad = Conditions(delay_s=0.02, jitter_s=0.01, loss=0.05, reorder=0.02)
    for a, b in zip(names, names[3:], strict=False):
        sim.connect(a, b, bad)
    for number, name in enumerate(names[:4]):
        sim.flow(name, f"topic/{number}/x", rate=20, start=1.0)
    sim.at(3.0, lambda: sim.crash("peer-2"))
    sim.at(4.0, lambda: sim.partition(names[:4]))
    sim.at(6.0, lambda: sim.restart("peer-2"))
    sim.at(7.0, sim.heal)
    sim.run_until(9.0)
    assert sim.ledger.delivered_count > 100
    return f"{sim.trace_hash()} {records.hexdigest()} {sim.events} {sim.ledger.delivered_count}"


def test_the_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    first = busy_mesh(11)
    assert busy_mesh(11) == first
    assert busy_mesh(12).split()[0] != first.split()[0]


def test_the_trace_is_the_same_in_processes_that_hash_strings_differently() -> None:
    command = [sys.executable, "-c", RUN_ONE, __file__, "11"]
    runs = [
        subprocess.Popen(
            command, env=os.environ | {"PYTHONHASHSEED": salt}, stdout=subprocess.PIPE, text=True
        )
        for salt in ("1", "2", "77")
    ]
    printed = {run.communicate(timeout=60)[0].strip() for run in runs}
    assert printed == {busy_mesh(11)}


def test_looking_at_a_run_does_not_change_it() -> None:
    def run(step_s: float, look: bool) -> str:
        sim = Simulator(5, check=look, keep_messages=look)
        for number, name in enumerate("abcd"):
            sim.add_peer(name, seeds="abcd"[:number])
            sim.subscribe(name, "t")
        sim.flow("a", "t", rate=50, start=1.0)
        while sim.now < 4.0:
            sim.run_until(min(4.0, sim.now + step_s))
            if look:
                sim.trace_hash()
                sim.counters()
        return sim.trace_hash()

    assert run(0.013, look=True) == run(4.0, look=False)


def test_time_does_not_run_backwards() -> None:
    sim = Simulator(1)
    sim.run_until(2.0)
    with pytest.raises(UsageError, match="already stands at 2"):
        sim.run_until(1.0)


def test_an_error_names_the_seed_and_the_time() -> None:
    sim = Simulator(4711)

    def broken() -> None:
        raise ValueError("a bug")

    sim.at(1.5, broken)
    with pytest.raises(ValueError, match="a bug") as caught:
        sim.run_until(2.0)
    assert "seed 4711 at 1.5" in caught.value.__notes__[0]


@pytest.mark.parametrize("damage", ["again", "earlier", "changed", "uninvited"])
def test_the_ledger_notices_a_broken_promise(damage: str) -> None:
    """The checks that every simulation rests on are themselves checked."""
    sim = Simulator(1)
    sim.add_peer("a", config=Config(neighbours_target=0))
    sim.add_peer("b", config=Config(neighbours_target=0), seeds=["a"])
    inbox = sim.subscribe("b", "t")
    sim.run_for(1)
    sim.publish("a", "t", b"1", b"2")
    runs = []
    deliver = sim.ledger.deliver

    def spy(subscription, run, now):  # type: ignore[no-untyped-def]
        runs.append(run)
        return deliver(subscription, run, now)

    sim.ledger.deliver = spy  # type: ignore[method-assign]
    sim.run_for(1)
    (run,) = runs
    if damage == "earlier":
        run.first_sequence, run.payloads = 0, run.payloads[:1]
    elif damage == "changed":
        sim.publish("a", "t", b"3", b"4")
        run.first_sequence = 2
    elif damage == "uninvited":
        sim.unsubscribe(inbox)
    with pytest.raises(BrokenPromiseError, match=r"'t' number \d of publisher 1 of a"):
        deliver(inbox, run, sim.now)
