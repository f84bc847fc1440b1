"""What the testbed asks of Linux: namespaces, TUN devices, a precise timer, priority, an end with the parent.

Thin calls, no decisions. Every failure is an OSError with the call's name.
"""

import ctypes
import fcntl
import os
import signal
import socket
import struct

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
PREFIX = 16
"""Of the hosts' network: 10.77.0.0/16."""
DEVICE = "wan"
QUEUE_PACKETS = 4000
"""A TUN device's own queue of 500 packets drops in silence."""

_PR_SET_PDEATHSIG = 1
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK = 0x8914, 0x8916, 0x891C
_SIOCSIFTXQLEN = 0x8943
_IFF_UP, _IFF_RUNNING = 0x1, 0x40
_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1

_libc = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Timer:
    """A timerfd on the monotonic clock: `fd` is readable once its time has come."""

    def __init__(self) -> None:
        self._setting = _Setting()
        self.fd: int = _libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        _check(self.fd, "timerfd_create")

    def set(self, when: float) -> None:
        """Replace what was set before."""
        nanoseconds = max(1, int(when * 1e9))
        value = self._setting.value
        value.seconds, value.nanoseconds = divmod(nanoseconds, 1_000_000_000)
        _check(
            _libc.timerfd_settime(self.fd, _TFD_TIMER_ABSTIME, ctypes.byref(self._setting), None),
            "timerfd_settime",
        )


def end_with_parent() -> None:
    """Let the kernel kill this process when the one that started it ends, however that happens."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "prctl")


def unshare(flags: int) -> None:
    """Leave the namespaces of the process; for CLONE_NEWUSER it must have one thread only."""
    _check(_libc.unshare(flags), "unshare")


def enter(path: str, kind: int) -> None:
    """Take this thread into the namespace that a path stands for."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter_fd(fd, kind)
    finally:
        os.close(fd)


def enter_fd(fd: int, kind: int) -> None:
    """The same by descriptor."""
    _check(_libc.setns(fd, kind), "setns")


def become_root_of_own() -> None:
    """A user namespace in which this process may make networks, for users without privilege."""
    user, group = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        fd = os.open(f"/proc/self/{name}", os.O_WRONLY)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def make_host(address: str) -> tuple[int, int]:
    """A network of its own with a TUN device of this address: (namespace, device) as descriptors."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        unshare(CLONE_NEWNET)
        try:
            namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(device, _TUNSETIFF, _request(DEVICE, struct.pack("H", _IFF_TUN | _IFF_NO_PI)))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
                _configure(control, address)
        finally:
            enter_fd(before, CLONE_NEWNET)
    finally:
        os.close(before)
    return namespace, device


def take_real_time() -> bool:
    """Let this process run before all ordinary ones; whether that is allowed."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except (OSError, AttributeError):
        return False
    return True


def _configure(control: socket.socket, address: str) -> None:
    mask = socket.inet_ntoa(struct.pack("!I", 0xFFFFFFFF << (32 - PREFIX) & 0xFFFFFFFF))
    fcntl.ioctl(control, _SIOCSIFADDR, _request(DEVICE, _address(address)))
    fcntl.ioctl(control, _SIOCSIFNETMASK, _request(DEVICE, _address(mask)))
    fcntl.ioctl(control, _SIOCSIFTXQLEN, _request(DEVICE, struct.pack("i", QUEUE_PACKETS)))
    for name in ("lo", DEVICE):
        fcntl.ioctl(control, _SIOCSIFFLAGS, _request(name, struct.pack("H", _IFF_UP | _IFF_RUNNING)))


def _request(name: str, value: bytes) -> bytes:
    return struct.pack("16s24s", name.encode(), value)


def _address(text: str) -> bytes:
    return struct.pack("HH4s", socket.AF_INET, 0, socket.inet_aton(text))


def _check(result: int, call: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
