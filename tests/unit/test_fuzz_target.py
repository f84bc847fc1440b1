"""The fuzz target itself: it runs without atheris, reaches what it aims at, and stays free of findings."""

import importlib.util
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

TARGET = Path(__file__).parents[1] / "fuzz" / "fuzz_receive.py"
CORPUS = sorted((TARGET.parent / "corpus").iterdir())


@pytest.fixture(scope="module")
def target() -> ModuleType:
    sys.path.insert(0, str(TARGET.parent))
    spec = importlib.util.spec_from_file_location("fuzz_receive", TARGET)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_receive"] = module
    spec.loader.exec_module(module)
    return module


def test_the_committed_inputs_pass(target: ModuleType) -> None:
    assert len(CORPUS) >= len(target.MAKERS)
    for path in CORPUS:
        target.fuzz_one(path.read_bytes())


@pytest.mark.parametrize("seed", range(4))
def test_random_inputs_pass(target: ModuleType, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(1500):
        target.fuzz_one(rng.randbytes(rng.randrange(1, 60)))


def test_spliced_and_changed_inputs_pass(target: ModuleType) -> None:
    rng = random.Random(99)
    seeds = [path.read_bytes() for path in CORPUS]
    for _ in range(1500):
        data = bytearray(rng.choice(seeds) + rng.choice(seeds))
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        target.fuzz_one(bytes(data))


def test_it_reaches_deliveries_relays_and_every_way_to_be_refused(target: ModuleType) -> None:
    """A target whose inputs all end at the first check would find nothing."""
    rng = random.Random(5)
    counted: set[str] = set()
    for _ in range(25):
        world = target.World()
        for _ in range(300):
            world.executions += 1
            world.live_through(target.Reader(rng.randbytes(rng.randrange(1, 90))))
        counted |= set(world.node.counters)
        world.check_bounds()
    assert {"delivered", "forwarded", "lost", "congestion_notices"} <= counted
    assert {"confirmed", "confirmations", "requests_received", "replies_sent", "harvests_partial"} <= counted
    reasons = {name.removeprefix("dropped.") for name in counted if name.startswith("dropped.")}
    expected = {"malformed", "version", "no_session", "replayed", "duplicate", "conflict", "no_link"}
    assert expected | {"no_subscriber", "table_full"} <= reasons


def test_a_failure_names_the_inputs_that_lead_to_it(
    target: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("found")

    target.fuzz_one(b"\x00")
    monkeypatch.setattr(target.World, "live_through", fail)
    with pytest.raises(RuntimeError, match="found") as caught:
        target.fuzz_one(b"\x00\x01")
    (note,) = caught.value.__notes__
    assert note.startswith("replay([")
    assert "'0001'" in note


def test_it_needs_neither_atheris_nor_zeromq() -> None:
    code = (
        "import runpy, sys; sys.path.insert(0, sys.argv[2]);"
        "runpy.run_path(sys.argv[1], run_name='fuzz_receive');"
        "sys.exit('zmq' in sys.modules or 'atheris' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(TARGET), str(TARGET.parent)]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0
