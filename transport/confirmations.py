"""What an application holds of messages with a guarantee: receipts, and their outcome."""

import asyncio
from weakref import WeakValueDictionary

import msgspec

from anabranch.overlay.actions import Failure, Settled
from anabranch.overlay.errors import ClosedError
from anabranch.overlay.outstreams import OutStream


class Outcome(msgspec.Struct, frozen=True):
    """Who confirmed, and who did not."""

    confirmed: tuple[str, ...]
    """The peers that confirmed everything asked about."""
    missing: dict[str, str]
    """The others that wanted it when it was put, and why there is no confirmation: `outstanding` (it may
    still come), `silent`, `unreached`, `busy`, `left`, `no_subscriber`, `not_selected`,
    `expired`, `damaged`."""

    @property
    def complete(self) -> bool:
        """Whether all who wanted it confirmed; False as well if nobody wanted it."""
        return bool(self.confirmed) and not self.missing


class Receipt:
    """One message that was put with a guarantee."""

    __slots__ = ("__weakref__", "_confirmations", "_missing", "receivers", "sequence")

    def __init__(self, confirmations: "Confirmations") -> None:
        self.sequence = -1
        """Its position among the messages of its publisher."""
        self.receivers: tuple[str, ...] = ()
        """The peers that wanted it when it was put, and those with durable subscriptions to it."""
        self._confirmations = confirmations
        self._missing: dict[str, str] = {}

    async def confirmed(self, timeout: float | None = None) -> Outcome:
        """Wait until each receiver confirmed or was given up; after `timeout` seconds, how it stands."""
        await self._confirmations.wait(self.sequence + 1, timeout)
        return self.outcome()

    def outcome(self) -> Outcome:
        """How it stands now."""
        missing = dict(self._missing)
        for peer, reason in self._confirmations.outstanding(self.sequence).items():
            missing.setdefault(peer, reason)
        return Outcome(tuple(name for name in self.receivers if name not in missing), missing)


class Confirmations:
    """One stream's receipts that somebody still holds, and what became of the rest, by peer."""

    def __init__(self, stream: OutStream) -> None:
        self.stream = stream
        self.floor = stream.floor
        """Every message before it is settled."""
        self._receipts: WeakValueDictionary[int, Receipt] = WeakValueDictionary()
        self._failed: dict[str, tuple[int, str]] = {}
        """By peer: the end of the last messages it did not confirm, and why."""
        self._changed = asyncio.Event()
        self._refusal = ""

    @property
    def is_done(self) -> bool:
        """Whether everything that was put is settled."""
        return self.floor == self.stream.next_sequence

    @property
    def is_over(self) -> bool:
        """Whether nothing will be put or settled any more."""
        return self.stream.is_closed and not self.stream.key.durable and self.is_done

    def register(self, receipt: Receipt, sequence: int) -> None:
        """A message was put."""
        receipt.sequence = sequence
        receipt.receivers = self.stream.names
        self._receipts[sequence] = receipt

    def settled(self, action: Settled) -> None:
        """The node says so."""
        for failure in action.failures:
            self._fail(failure)
        if action.floor > self.floor:
            self.floor = action.floor
            for sequence in list(self._receipts):
                if sequence >= action.floor:
                    break
                self._receipts.pop(sequence, None)
        self._wake()

    def end(self, refusal: str) -> None:
        """The peer was closed: nothing more will be heard."""
        self._refusal = refusal
        self._wake()

    async def wait(self, floor: int, timeout: float | None) -> None:
        """Until everything before `floor` is settled, or the time is over."""
        try:
            async with asyncio.timeout(timeout):
                while self.floor < floor:
                    await self.changed()
        except TimeoutError:
            return

    async def changed(self) -> None:
        """Until something was settled; ClosedError if nothing will be."""
        if self._refusal:
            raise ClosedError(self._refusal)
        await self._changed.wait()

    def outstanding(self, sequence: int) -> dict[str, str]:
        """Who may still confirm a message."""
        if sequence < self.floor:
            return {}
        return {peer: reason.value for peer, reason in self.stream.outstanding(sequence).items()}

    def failed_since(self, sequence: int) -> dict[str, str]:
        """Who did not confirm some message from here on, and why not."""
        return {peer: reason for peer, (end, reason) in self._failed.items() if end > sequence}

    def _fail(self, failure: Failure) -> None:
        peer, reason = failure.peer, failure.reason.value
        self._failed[peer] = (max(failure.end, self._failed.get(peer, (0, ""))[0]), reason)
        for sequence in list(self._receipts):
            if failure.first <= sequence < failure.end and (receipt := self._receipts.get(sequence)):
                receipt._missing[peer] = reason  # noqa: SLF001 - a receipt is ours until it is settled

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
