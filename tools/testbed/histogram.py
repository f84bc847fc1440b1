"""Durations counted in bins that grow by 2 %: quantiles of any number of samples in bounded memory."""

import math

_LEAST_S = 1e-6
_GROWTH = math.log(1.02)
_BINS = 1050
"""Up to about 1000 s; what is longer counts as that."""


class Histogram:
    """Samples in seconds. Quantiles are right to about 1 %."""

    def __init__(self) -> None:
        self.count = 0
        self._bins = [0] * _BINS

    def add(self, seconds: float) -> None:
        """Count one sample."""
        self.count += 1
        self._bins[min(_BINS - 1, int(math.log(max(seconds, _LEAST_S) / _LEAST_S) / _GROWTH))] += 1

    def quantile(self, share: float) -> float | None:
        """The duration that this share of the samples does not exceed; None without samples."""
        rank = max(1, math.ceil(self.count * share))
        for index, count in enumerate(self._bins):
            rank -= count
            if rank <= 0 < count:
                return _LEAST_S * math.exp((index + 0.5) * _GROWTH)
        return None
