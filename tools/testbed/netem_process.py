"""Hosts as namespaces on a bridge, with `tc netem` on their devices, where the kernel has the module.

The same orders and answers as `wan_process.py`; namespaces and devices end with this process.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec

from anabranch.tools.testbed import kernel
from anabranch.tools.testbed.wan import address_of
from anabranch.tools.testbed.wan_process import Answer, Order
from anabranch.transport.simulator import Conditions

RATE = "10gbit"
LIMIT_PACKETS = 50_000


def qdisc_words(conditions: Conditions) -> list[str]:
    """What `tc qdisc ... netem` is told for one direction."""
    words = ["netem", "limit", str(LIMIT_PACKETS), "delay", _ms(conditions.delay_s + conditions.jitter_s / 2)]
    if conditions.jitter_s:
        words.append(_ms(conditions.jitter_s / 2))
    if conditions.blackhole or conditions.loss >= 1:
        return [*words, "loss", "100%"]
    if conditions.loss and conditions.loss_after_loss is not None:
        again, loss = conditions.loss_after_loss, conditions.loss
        begin = min(1.0, loss * (1 - again) / (1 - loss))
        words += ["loss", "gemodel", f"{begin:.6%}", f"{1 - again:.6%}"]
    elif conditions.loss:
        words += ["loss", f"{conditions.loss:.6%}"]
    if conditions.reorder:
        words += ["reorder", f"{1 - conditions.reorder:.6%}"]
    if conditions.rate_bytes_s is not None:
        words += ["rate", f"{int(conditions.rate_bytes_s * 8)}bit"]
    return words


class Hosts:
    """A bridge in this process's own network, and a namespace for each host."""

    def __init__(self, count: int, default: Conditions) -> None:
        kernel.unshare(kernel.CLONE_NEWNET)
        self.namespaces: list[int] = []
        self._hub = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._count = count
        _run("ip", "link", "add", "hub", "type", "bridge")
        _run("ip", "link", "set", "hub", "up")
        for number in range(1, count + 1):
            self._add(number, default)

    def shape(self, ways: list[tuple[int, int, Conditions]]) -> None:
        """Change directions."""
        for source in dict.fromkeys(way[0] for way in ways):
            with self._inside(source):
                for _, target, conditions in (way for way in ways if way[0] == source):
                    place = (
                        "dev",
                        kernel.DEVICE,
                        "parent",
                        f"1:{target:x}",
                        "handle",
                        f"{target + 0x100:x}:",
                    )
                    _run("tc", "qdisc", "replace", *place, *qdisc_words(conditions))

    def _add(self, number: int, default: Conditions) -> None:
        kernel.unshare(kernel.CLONE_NEWNET)
        self.namespaces.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        kernel.enter_fd(self._hub, kernel.CLONE_NEWNET)
        outer, place = f"host{number}", f"/proc/{os.getpid()}/fd/{self.namespaces[-1]}"
        _run("ip", "link", "add", outer, "type", "veth", "peer", "name", kernel.DEVICE, "netns", place)
        _run("ip", "link", "set", outer, "master", "hub", "up")
        with self._inside(number):
            _run("ip", "link", "set", "lo", "up")
            _run("ip", "address", "add", f"{address_of(number)}/{kernel.PREFIX}", "dev", kernel.DEVICE)
            _run("ip", "link", "set", kernel.DEVICE, "up", "txqueuelen", str(kernel.QUEUE_PACKETS))
            device = ("dev", kernel.DEVICE)
            _run("tc", "qdisc", "add", *device, "root", "handle", "1:", "htb")
            for target in range(1, self._count + 1):
                if target == number:
                    continue
                flow = f"1:{target:x}"
                _run("tc", "class", "add", *device, "parent", "1:", "classid", flow, "htb", "rate", RATE)
                match = ("u32", "match", "ip", "dst", f"{address_of(target)}/32", "flowid", flow)
                _run("tc", "filter", "add", *device, "protocol", "ip", "parent", "1:", "prio", "1", *match)
        ways = [(number, target, default) for target in range(1, self._count + 1) if target != number]
        self.shape(ways)

    @contextlib.contextmanager
    def _inside(self, number: int) -> Iterator[None]:
        kernel.enter_fd(self.namespaces[number - 1], kernel.CLONE_NEWNET)
        try:
            yield
        finally:
            kernel.enter_fd(self._hub, kernel.CLONE_NEWNET)


def serve() -> None:
    """Follow orders until stdin ends."""
    hosts: Hosts | None = None
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order)
        answer = Answer(at=time.monotonic())
        try:
            if order.call == "make":
                if order.own_user:
                    kernel.become_root_of_own()
                    kernel.end_with_parent()
                hosts = Hosts(order.hosts, order.default or Conditions())
                process = f"/proc/{os.getpid()}"
                places = [f"{process}/fd/{fd}" for fd in hosts.namespaces]
                user = f"{process}/ns/user" if order.own_user else ""
                answer = Answer(at=time.monotonic(), namespaces=places, user=user)
            elif order.call == "shape" and hosts is not None:
                hosts.shape(order.ways)
                answer = Answer(at=time.monotonic())
        except OSError as error:
            answer = Answer(at=time.monotonic(), error=str(error.strerror or error))
        os.write(1, msgspec.json.encode(answer) + b"\n")


def try_out() -> None:
    """Make two hosts with a delay, or end with what the system says."""
    try:
        if os.geteuid() != 0:
            kernel.become_root_of_own()
        Hosts(2, Conditions(delay_s=0.01))
    except OSError as error:
        sys.exit(f"netem is not usable: {error.strerror or error}")


def _run(*words: str) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603 - ip and tc
    except FileNotFoundError:
        raise OSError(f"the program {words[0]!r} of iproute2 is not installed") from None
    if done.returncode != 0:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}ms"


if __name__ == "__main__":
    kernel.end_with_parent()
    if sys.argv[1:] == ["try"]:
        try_out()
    else:
        serve()
