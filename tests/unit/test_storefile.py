"""A store with bits flipped or its end cut off: that is noticed and set aside, or nothing is missing."""

import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from anabranch.overlay.errors import UsageError
from anabranch.transport.storefile import COLUMNS, StoreFile

LONG = bool(os.environ.get("LONG_TESTS"))
"""Every byte and every length instead of a sample, of a store with small pages; some minutes."""
PAGE_BYTES = 512
ROWS = 30
PAYLOAD_BYTES = 30 if LONG else 300

Content = dict[str, list[tuple[object, ...]]]


def fill(path: Path) -> StoreFile:
    """A store in use: much of it is in the write-ahead log as long as it is open."""
    if LONG:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("VACUUM")
    file = StoreFile(path, 7)
    for begin in range(0, ROWS, 10):
        file.begin()
        for sequence in range(begin, begin + 10):
            payload = random.Random(sequence).randbytes(PAYLOAD_BYTES)
            file.put("log", 1, sequence, 1000 + sequence, 0, payload)
        file.put("streams", 1, "orders/new", begin + 10, 0)
        file.put("consumers", "p2", "keeper", "orders/*")
        file.put("confirmed", "p2", "keeper", 1, begin)
        file.put("positions", "mine", "p3", 5, 6, begin)
        file.put("durables", "mine", "feed/**", 0)
        file.commit()
    return file


def snapshot(source: Path, target: Path) -> list[Path]:
    """Copy what a killed process leaves."""
    copies = []
    for suffix in ("", "-wal", ".witness"):
        original = Path(f"{source}{suffix}")
        if original.exists():
            copies.append(Path(f"{target}{suffix}"))
            shutil.copy(original, copies[-1])
    return copies


def content(file: StoreFile) -> Content:
    return {table: file.rows(table) for table in COLUMNS if table != "meta"}


@pytest.fixture(scope="module", params=["in the log", "in the file"])
def victim(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Content]:
    """A store whose content is still in the write-ahead log, or was moved to the main file."""
    folder = tmp_path_factory.mktemp("victim")
    live = fill(folder / "live.store")
    snapshot(folder / "live.store", folder / "a.store")  # while it is open: what a kill leaves
    live.close()
    if request.param == "in the file":
        file = StoreFile(folder / "a.store", 8)
        file.close()
    check = folder / "check.store"
    snapshot(folder / "a.store", check)
    file = StoreFile(check, 8)
    assert not file.report
    whole = content(file)
    file.close()
    assert len(whole["log"]) == ROWS
    return folder / "a.store", whole


def look(path: Path, whole: Content, harm: str) -> bool:
    """Whether the harm was noticed; AssertionError if something is missing and nobody says so."""
    file = StoreFile(path, 9)
    try:
        found = content(file)
        if file.is_set_aside:
            assert "set aside" in file.report
            assert not any(found.values())
            assert list(path.parent.glob(f"{path.name}*.damaged-*")), harm
        else:
            assert found == whole, f"{harm}: not noticed"
        file.begin()  # it is usable all the same
        file.put("durables", "new", "**", 0)
        file.commit()
        return file.is_set_aside
    finally:
        file.close()


def places(size: int, count: int, seed: int) -> list[int]:
    if LONG or size <= count:
        return list(range(size))
    special = {place for place in (0, 18, 19, 28, 100, size - 1) if place < size}
    return sorted(special.union(random.Random(seed).sample(range(size), count)))


@pytest.mark.parametrize("suffix", ["", "-wal", ".witness"])
@pytest.mark.timeout(3600 if LONG else 120)
def test_flipped_bits_are_noticed_or_harmless(
    victim: tuple[Path, Content], suffix: str, tmp_path: Path
) -> None:
    source, whole = victim
    if not Path(f"{source}{suffix}").exists():
        pytest.skip("no such file")
    size = Path(f"{source}{suffix}").stat().st_size
    noticed = 0
    for place in places(size, 12, 1):
        folder = tmp_path / str(place)
        folder.mkdir()
        path = folder / "a.store"
        snapshot(source, path)
        data = bytearray(Path(f"{path}{suffix}").read_bytes())
        bit = random.Random(place).randrange(8)
        data[place] ^= 1 << bit
        Path(f"{path}{suffix}").write_bytes(data)
        noticed += look(path, whole, f"bit {bit} of byte {place} of {suffix or 'the file'}")
        shutil.rmtree(folder)
    holds_all = "-wal" if Path(f"{source}-wal").exists() else ""
    assert noticed or suffix != holds_all


@pytest.mark.parametrize("suffix", ["", "-wal", ".witness"])
@pytest.mark.timeout(3600 if LONG else 120)
def test_a_lost_end_is_noticed(victim: tuple[Path, Content], suffix: str, tmp_path: Path) -> None:
    source, whole = victim
    if not Path(f"{source}{suffix}").exists():
        pytest.skip("no such file")
    size = Path(f"{source}{suffix}").stat().st_size
    for length in places(size, 12, 2):
        folder = tmp_path / str(length)
        folder.mkdir()
        path = folder / "a.store"
        snapshot(source, path)
        os.truncate(f"{path}{suffix}", length)
        look(path, whole, f"{suffix or 'the file'} cut to {length}")
        shutil.rmtree(folder)


def test_a_store_that_is_gone_is_reported(victim: tuple[Path, Content], tmp_path: Path) -> None:
    source, _ = victim
    path = tmp_path / "a.store"
    snapshot(source, path)
    path.unlink()
    Path(f"{path}-wal").unlink(missing_ok=True)
    file = StoreFile(path, 9)
    assert file.is_set_aside
    assert "had" in file.report
    file.close()


def test_a_missing_witness_is_reported_and_the_store_used(
    victim: tuple[Path, Content], tmp_path: Path
) -> None:
    source, whole = victim
    path = tmp_path / "a.store"
    snapshot(source, path)
    Path(f"{path}.witness").unlink()
    file = StoreFile(path, 9)
    assert "witness" in file.report
    assert not file.is_set_aside
    assert content(file) == whole
    file.close()


def test_two_processes_do_not_share_a_store(tmp_path: Path) -> None:
    first = StoreFile(tmp_path / "a.store", 1)
    with pytest.raises(UsageError, match="in use"):
        StoreFile(tmp_path / "a.store", 1)
    first.begin()
    first.put("durables", "mine", "**", 0)
    first.commit()
    first.close()
    again = StoreFile(tmp_path / "a.store", 1)
    assert again.rows("durables") == [("mine", "**", 0)]
    again.close()
