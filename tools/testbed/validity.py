"""Whether a run on the testbed counts as a measurement of latency."""

import msgspec

from anabranch.tools.testbed.backends import BackendKind, Emulation

LATENESS_MAX_MS = 1.0
FOREIGN_MAX = 0.3
"""Cores that other programs may use."""


class Validity(msgspec.Struct, frozen=True):
    """What was measured about the measurement."""

    emulation: Emulation
    foreign_cpu: float
    """Cores that other programs used."""
    doubts: list[str]

    @property
    def is_valid(self) -> bool:
        """Whether latencies may be published."""
        return not self.doubts


def judge(emulation: Emulation, foreign_cpu: float) -> Validity:
    """The doubts about a run, in words."""
    doubts = []
    if emulation.backend is BackendKind.PROXIES:
        doubts.append("proxies on loopback: latencies are about a millisecond too long, and losses are TCP's")
    if (emulation.lateness_p99_ms or 0.0) > LATENESS_MAX_MS:
        doubts.append(
            f"packets left late, p99 {emulation.lateness_p99_ms} ms; {LATENESS_MAX_MS} ms is the limit"
        )
    if emulation.refused:
        doubts.append(f"the emulation itself lost {emulation.refused} packets")
    if foreign_cpu > FOREIGN_MAX:
        doubts.append(f"other programs used {foreign_cpu:.2f} cores; {FOREIGN_MAX} is the limit")
    return Validity(emulation, round(foreign_cpu, 3), doubts)
