"""How many messages per second a publisher may put: a bucket of tokens."""

BURST_S = 0.1
"""What was not used for this long may be used at once."""


class Rate:
    """`rate` per second; bursts of a tenth of that, and of one message at least."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._most = max(1.0, rate * BURST_S)
        self._tokens = self._most
        self._at = now

    def take(self, now: float) -> float:
        """0 if a message may be put now, which then counts; else how many seconds it is too early."""
        self._tokens = min(self._most, self._tokens + max(0.0, now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1.0:
            return (1.0 - self._tokens) / self._rate
        self._tokens -= 1.0
        return 0.0
