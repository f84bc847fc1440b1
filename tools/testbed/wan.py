"""A wide-area network in user space: takes packets from the hosts' devices and delivers them when due.

Knows hosts by number and conditions per direction; decides nothing. Run by `wan_process.py`.
"""

import contextlib
import os
import random
import select
import struct
import time
from collections.abc import Callable
from heapq import heappop, heappush

from anabranch.tools.testbed.histogram import Histogram
from anabranch.tools.testbed.kernel import Timer
from anabranch.tools.testbed.shaping import Channel
from anabranch.transport.simulator import Conditions

HOSTS_MAX = 250
NETWORK = "10.77"
PENDING_MAX = 200_000
"""Packets under way at most; more are lost."""
_PACKET_MAX = 65_536
_DRAIN = 64
"""Packets read from one device before the others get their turn."""
_ADDRESSES = struct.Struct("!HHHH")


def address_of(number: int) -> str:
    """The address of a host, counted from 1."""
    return f"{NETWORK}.{number // 250}.{number % 250 + 1}"


class Wan:
    """Made inside the process that holds the devices; `run` until told to stop."""

    def __init__(self, devices: dict[int, int], default: Conditions, seed: int) -> None:
        self.lateness = Histogram()
        """How much later than due packets left: how far the emulation can be trusted."""
        self.overflowed = 0
        """Packets that found too many under way."""
        self.refused = 0
        """Packets that a device did not take."""
        self._default = default
        self._rng = random.Random(seed)  # noqa: S311 - losses and jitter
        self._devices = devices
        self._number_of = {_low(address_of(number)): number for number in devices}
        self._device_of = {_low(address_of(number)): fd for number, fd in devices.items()}
        self._channels: dict[tuple[int, int], Channel] = {}
        self._pending: list[tuple[float, int, int, bytes]] = []
        self._serial = 0
        self._timer = Timer()
        self._armed = 0.0
        self._stopped = False

    def shape(self, source: int, target: int, conditions: Conditions) -> None:
        """Change one direction."""
        key = _low(address_of(source)), _low(address_of(target))
        channel = self._channels.get(key)
        if channel is None:
            self._channels[key] = Channel(conditions)
        else:
            channel.set(conditions)

    def counts(self) -> tuple[int, int]:
        """Packets carried, and lost as the conditions want it."""
        channels = self._channels.values()
        return sum(each.carried for each in channels), sum(each.lost for each in channels)

    def stop(self) -> None:
        """End `run`."""
        self._stopped = True

    def run(self, orders: int, on_orders: Callable[[], None]) -> None:
        """Carry packets; `on_orders` is called when that descriptor is readable."""
        poller = select.epoll()
        try:
            for fd in (*self._devices.values(), self._timer.fd, orders):
                poller.register(fd, select.EPOLLIN)
            while not self._stopped:
                for fd, _ in poller.poll():
                    if fd == self._timer.fd:
                        with contextlib.suppress(BlockingIOError):
                            os.read(fd, 8)
                        self._armed = 0.0
                    elif fd == orders:
                        on_orders()
                    else:
                        self._read(fd)
                self._release()
        finally:
            poller.close()

    def _read(self, fd: int) -> None:
        channels, pending = self._channels, self._pending
        for _ in range(_DRAIN):
            try:
                packet = os.read(fd, _PACKET_MAX)
            except BlockingIOError:
                return
            if packet[0] >> 4 != 4 or len(packet) < 20:  # IPv6 looks for routers all the time
                continue
            _, low, _, target = _ADDRESSES.unpack_from(packet, 12)
            device = self._device_of.get(target)
            if device is None:
                continue
            channel = channels.get((low, target))
            if channel is None:
                channel = channels[low, target] = Channel(self._default)
            due = channel.due(len(packet), time.monotonic(), self._rng)
            if due is None:
                continue
            if len(pending) >= PENDING_MAX:
                self.overflowed += 1
                continue
            self._serial += 1
            heappush(pending, (due, self._serial, device, packet))

    def _release(self) -> None:
        pending = self._pending
        while pending:
            due = pending[0][0]
            now = time.monotonic()
            if due > now:
                if not self._armed or due < self._armed:
                    self._armed = due
                    self._timer.set(due)
                return
            _, _, device, packet = heappop(pending)
            self.lateness.add(now - due)
            try:
                os.write(device, packet)
            except OSError:
                self.refused += 1


def _low(address: str) -> int:
    high, low = address.split(".")[2:]
    return int(high) << 8 | int(low)
