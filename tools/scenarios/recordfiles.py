"""The nodes' log records of a run in virtual time, one JSON-lines file per peer, in the form of `LogWriter`.

Virtual time waits for the disk, so nothing is dropped and a repeated run writes the same bytes.
"""

import copy
from collections.abc import Mapping
from pathlib import Path

import msgspec

from anabranch.overlay.errors import UsageError
from anabranch.overlay.records import LogRecord
from anabranch.transport.simulator import EPOCH_BASE_US

BUFFER_RECORDS = 1000


class RecordFiles:
    """Files `<peer>-<start>-00000.jsonl` in a directory; under their final names once closed.

    `ts` counts from a fixed moment in 2020, as the epochs of simulated peers do: it looks like the wall
    clock's, and is the same in every run.
    """

    def __init__(self, directory: Path, clock_offsets_s: Mapping[str, float]) -> None:
        self._directory = directory
        self._shift_us = {peer: EPOCH_BASE_US - int(offset * 1e6) for peer, offset in clock_offsets_s.items()}
        self._waiting: dict[str, list[LogRecord]] = {}
        self._begun: set[str] = set()
        self._encoder = msgspec.json.Encoder()
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"log directory {str(directory)!r}: {error.strerror}; name one that can be written"
            ) from None

    def write(self, record: LogRecord) -> None:
        """Take a record of any peer."""
        waiting = self._waiting.setdefault(record.peer, [])
        stamped = copy.copy(record)
        stamped.ts += self._shift_us[record.peer]
        waiting.append(stamped)
        if len(waiting) >= BUFFER_RECORDS:
            self._flush(record.peer)

    def close(self) -> None:
        """Write what waits and give the files their names."""
        for peer in list(self._waiting):
            self._flush(peer)
        for peer in sorted(self._begun):
            self._part(peer).rename(self._final(peer))
        self._begun.clear()

    def _flush(self, peer: str) -> None:
        records = self._waiting[peer]
        if not records:
            return
        mode = "ab" if peer in self._begun else "wb"
        self._begun.add(peer)
        with self._part(peer).open(mode) as file:
            file.write(self._encoder.encode_lines(records))
        records.clear()

    def _final(self, peer: str) -> Path:
        return self._directory / f"{peer}-{EPOCH_BASE_US}-00000.jsonl"

    def _part(self, peer: str) -> Path:
        return self._final(peer).with_suffix(".jsonl.part")
