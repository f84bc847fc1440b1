"""The systems that a bench compares the product with: their idioms, and whether they are installed."""

import importlib.util
import shutil

import msgspec


class System(msgspec.Struct, frozen=True):
    """One system and the idioms it is measured with; the fastest one counts."""

    name: str
    throughput: tuple[str, ...]
    """Variants for throughput, as its module knows them."""
    rtt: tuple[str, ...]
    """Variants for round trips."""
    unranked: tuple[str, ...] = ()
    """Variants for throughput that are reported and not compared with: slower idioms, or less work done."""
    library: str = ""
    """What must be importable."""
    install: str = ""
    """How to get that."""
    binary: str = ""
    """What must be on PATH."""

    def missing(self) -> str:
        """Why the system cannot be measured here; empty when it can."""
        if self.library and importlib.util.find_spec(self.library) is None:
            return f"the Python package {self.library!r} is not installed: pip install {self.install!r}"
        if self.binary and shutil.which(self.binary) is None:
            return f"{self.binary!r} is not on PATH: install your system's package of that name"
        return ""


PRODUCT = System("anabranch", ("async_for",), ("async_for",))

RIVALS = {
    system.name: system
    for system in (
        System("raw", ("pub_sub", "dealer_router"), ("dealer_router",), unranked=("multipart",)),
        System("raw_blocking", ("pub_sub", "dealer_router"), ("dealer_router",), unranked=("bare",)),
        System(
            "zenoh",
            ("fifo", "callback"),
            ("direct_callback", "fifo"),
            library="zenoh",
            install="anabranch[bench]",
        ),
        System(
            "nats",
            ("callback",),
            ("callback",),
            library="nats",
            install="anabranch[bench]",
            binary="nats-server",
        ),
    )
}
