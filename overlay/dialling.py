"""Addresses this peer wants a link to: seeds for ever, others it heard of for a while; with back-off."""

from collections.abc import Iterable

import msgspec

from anabranch.overlay.identity import Rng

BACKOFF_FIRST_S = 0.2
BACKOFF_MAX_S = 2.0
LEARNED_TRIES_MAX = 4
"""A learned address is given up after this many failures; its peer may tell a better one."""


class Target(msgspec.Struct):
    """One address."""

    address: str
    permanent: bool
    due: float
    tries: int = 0
    dialling: bool = False
    linked: bool = False
    peer: str = ""
    """Who answered there last."""


class Dialling:
    """Which address to dial when."""

    def __init__(self, rng: Rng, targets_max: int) -> None:
        self._rng = rng
        self._targets_max = targets_max
        self._targets: dict[str, Target] = {}
        self._next: float | None = None
        self._is_stale = False
        """Whether `_next` has to be looked up again."""

    def add(self, address: str, permanent: bool, now: float) -> None:
        """Want a link to this address; a known one stays as it is."""
        if address not in self._targets and (permanent or len(self._targets) < self._targets_max):
            self._targets[address] = Target(address, permanent, now)
            self._is_stale = True

    def knows(self, address: str) -> bool:
        """Whether it is being cared for."""
        return address in self._targets

    def busy(self) -> bool:
        """Whether a dial is under way or a dialled link stands."""
        return any(target.dialling or target.linked for target in self._targets.values())

    def due(self, now: float, neighbours: "dict[str, object]", only_one: bool) -> list[str]:
        """The addresses to dial now; they count as being dialled. Neighbours need no second link."""
        if only_one and self.busy():
            return []
        self._is_stale = True
        chosen = []
        ready = [t for t in self._targets.values() if not t.dialling and not t.linked and t.due <= now]
        for target in sorted(ready, key=lambda t: (t.tries, t.due)) if only_one else ready:
            if target.peer in neighbours:
                target.due = now + 1.0
                continue
            target.dialling = True
            chosen.append(target.address)
            if only_one:
                break
        return chosen

    def next_timeout(self) -> float | None:
        """When an address becomes due."""
        if self._is_stale:
            self._is_stale = False
            waiting = [t.due for t in self._targets.values() if not t.dialling and not t.linked]
            self._next = min(waiting, default=None)
        return self._next

    def opened(self, address: str) -> None:
        """The connection stands; its hello is still to come."""
        target = self._targets.get(address)
        if target is not None:
            target.dialling, target.linked = False, True
            self._is_stale = True

    def confirmed(self, address: str, peer: str) -> None:
        """The hello is complete."""
        target = self._targets.get(address)
        if target is not None:
            target.peer, target.tries = peer, 0

    def belongs(self, addresses: Iterable[str], peer: str) -> None:
        """A peer told where it can be dialled: while it is a neighbour, it needs no second link."""
        for address in addresses:
            target = self._targets.get(address)
            if target is not None and not target.peer:
                target.peer = peer

    def failed(self, address: str, now: float) -> None:
        """The connection failed, or was closed: try again later."""
        target = self._targets.get(address)
        if target is None:
            return
        self._is_stale = True
        target.dialling = target.linked = False
        target.tries += 1
        if not target.permanent and target.tries >= LEARNED_TRIES_MAX:
            del self._targets[address]
            return
        pause = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(target.tries - 1, 10))
        target.due = now + pause * self._rng.uniform(0.75, 1.25)

    def forget_all(self) -> None:
        """Dial nobody any more."""
        self._targets.clear()
        self._is_stale = True
        self._targets_max = 0

    def forget(self, address: str) -> None:
        """Never dial this again: it is ourselves."""
        self._targets.pop(address, None)
        self._is_stale = True
