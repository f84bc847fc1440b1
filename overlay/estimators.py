"""Moving averages of a link: delay, jitter, loss, availability. No state but their own numbers."""

import msgspec

LOSS_ENTER, LOSS_CLEAR = 0.05, 0.02
"""Shares of lost probes: from the first on a link counts as lossy, until it loses less than the second."""
MOST_ENTER, MOST_CLEAR = 0.6, 0.3
"""The same for a link that loses so much that what is sent again gets lost too."""
LOSSY, LOSES_MOST = 2, 4
"""Levels of loss at which a link begins to count as such; one level below, it still does if it did."""
CLOCK_SLACK_S = 0.002
ACK_SLACK_S = 0.12
"""An acknowledgement may come so much later than the link and the neighbour's habit explain."""


class Estimate(msgspec.Struct):
    """What is known about one link, updated by the outcome of each probe (EWMA; Harmony, section 2.1)."""

    weight: float
    """Share of a new sample."""
    delay_s: float = 0.0
    """One way: half of the round trip."""
    jitter_s: float = 0.0
    """Mean deviation of the delay."""
    loss: float = 0.0
    """Share of probes without an echo."""
    availability: float = 1.0
    """Share of probe intervals in which the link was usable."""
    samples: int = 0
    skew_s: float = 0.0
    """By how much longer than half of the round trip a message takes there, and shorter back."""
    offset_s: float | None = None
    """How much later than ours the neighbour's clock seems to be, by the last probe."""

    @property
    def there_s(self) -> float:
        """One way towards the neighbour."""
        return max(0.0, self.delay_s + self.skew_s)

    @property
    def back_s(self) -> float:
        """One way from the neighbour."""
        return max(0.0, self.delay_s - self.skew_s)

    def add_round_trip(self, round_trip_s: float) -> None:
        """A probe came back."""
        sample = max(round_trip_s, 0.0) / 2
        if self.samples == 0:
            self.delay_s = sample
        else:
            self.jitter_s += self.weight * (abs(sample - self.delay_s) - self.jitter_s)
            self.delay_s += self.weight * (sample - self.delay_s)
        self.samples += 1
        self.loss -= self.weight * self.loss

    def add_offset(self, offset_s: float, round_trip_s: float, is_trusted: bool) -> None:
        """What the same probe told of the clocks. An offset that no link can have is the clocks' alone."""
        half = round_trip_s / 2
        self.offset_s = offset_s
        sample = offset_s if is_trusted and abs(offset_s) <= half + CLOCK_SLACK_S else 0.0
        sample = max(-half, min(half, sample))
        self.skew_s += (self.weight if self.samples > 1 else 1.0) * (sample - self.skew_s)

    def clock_moved(self, step_s: float, is_trusted: bool) -> None:
        """Our clock shows so much more than before."""
        if self.offset_s is None:
            return
        if is_trusted and abs(self.offset_s) <= self.delay_s + CLOCK_SLACK_S:
            self.skew_s = max(-self.delay_s, min(self.delay_s, self.skew_s - step_s))
        self.offset_s -= step_s

    def add_loss(self) -> None:
        """A probe did not come back in time."""
        self.loss += self.weight * (1.0 - self.loss)

    def add_interval(self, usable: bool) -> None:
        """A probe interval passed with the link usable or not."""
        self.availability += self.weight * ((1.0 if usable else 0.0) - self.availability)


def loss_level(loss: float) -> int:
    """0 for a sound link, `LOSSY`, `LOSES_MOST`; those in between: as it was before."""
    return (loss >= LOSS_CLEAR) + (loss >= LOSS_ENTER) + (loss >= MOST_CLEAR) + (loss >= MOST_ENTER)


def answer_due_s(ack_delay_s: float, delay_s: float, jitter_s: float) -> float:
    """After how long a bundle that is not acknowledged is missed."""
    return ack_delay_s + 2 * delay_s + 4 * jitter_s + ACK_SLACK_S


def differs(old_s: float, new_s: float, ratio: float, least_s: float) -> bool:
    """Whether a changed value is worth telling: by a share and by an absolute amount."""
    change = abs(new_s - old_s)
    return change >= least_s and change >= ratio * max(old_s, new_s)
