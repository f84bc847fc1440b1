"""The store's thread when its disk fails: who asked is told, what nobody asks for again is done later."""

import sqlite3
from pathlib import Path
from typing import cast

import pytest

from anabranch.overlay.errors import StoreError
from anabranch.overlay.outstreams import Kept
from anabranch.transport.confirmations import Receipt
from anabranch.transport.loops import run
from anabranch.transport.store import Store
from anabranch.transport.storefile import StoreFile


class FailingDisk:
    """Commits fail while it is broken, as when the disk has no room."""

    def __init__(self, file: StoreFile, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_broken = False
        self.failed = 0
        commit = file.commit

        def fail_or_commit() -> None:
            if self.is_broken:
                self.failed += 1
                raise sqlite3.OperationalError("database or disk is full")
            commit()

        monkeypatch.setattr(file, "commit", fail_or_commit)


def test_after_a_failed_transaction_the_store_goes_on_and_owes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        store = await Store.open(tmp_path, "a", 10_000_000)
        disk = FailingDisk(store._file, monkeypatch)
        key = store.key(await store.stream("t"))
        await store.append(key, b"first", 5, cast("Receipt", None))
        loaded: list[list[tuple[int, Kept]]] = []

        disk.is_broken = True
        store.keep_consumer("b", "mine", "t")
        store.keep_durable("own", "t")
        store.load(key, 0, 1000, lambda messages, _: loaded.append(messages))
        with pytest.raises(StoreError, match="disk is full"):
            await store.append(key, b"refused", 7, cast("Receipt", None))
        assert disk.failed
        assert not loaded

        disk.is_broken = False
        await store.append(key, b"second", 6, cast("Receipt", None))
        assert [[(sequence, kept.payload) for sequence, kept in each] for each in loaded] == [[(0, b"first")]]
        await store.close()

        again = await Store.open(tmp_path, "a", 10_000_000)
        assert not again.report
        assert again.consumers == [("b", "mine", "t")]
        assert again.durables == {"own": ("t", False)}
        assert again.streams["t"].next_sequence == 2
        await again.close()

    run(scenario())
