"""Moving averages of a link: delay, jitter, loss, availability. No state but their own numbers."""

from math import fsum
from statistics import median

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
FAR_S = 0.003
"""Closer to the average than this no sample is far from it: so little changes no route that matters."""
FAR_DEVIATIONS = 4.0
"""Nor is one closer than so many mean deviations."""


class Run(msgspec.Struct):
    """Samples in a row that are all far from where the average stood, on the same side of it."""

    length: int
    """So many of them are a step. 0: there are no steps."""
    level_s: float = 0.0
    far_s: float = 0.0
    noise_s: float = 0.0
    samples: list[float] = []

    def add(self, sample_s: float, level_s: float, noise_s: float) -> bool:
        """Whether `samples` are a step, with this one; level and noise are those without it."""
        samples = self.samples
        if samples:
            apart = sample_s - self.level_s
            if abs(apart) > self.far_s and (apart > 0) == (samples[0] > self.level_s):
                samples.append(sample_s)
                return len(samples) >= self.length
            samples.clear()
        self.far_s = max(FAR_S, FAR_DEVIATIONS * noise_s)
        if abs(sample_s - level_s) > self.far_s:
            self.level_s, self.noise_s = level_s, noise_s
            samples.append(sample_s)
        return bool(samples) and self.length == 1

    def shift(self, by_s: float) -> None:
        """What is measured against is elsewhere by so much."""
        self.level_s += by_s
        self.samples = [sample + by_s for sample in self.samples]

    def end(self) -> tuple[float, float]:
        """The median of the samples, and the deviation to go on with; the run is over."""
        middle = median(self.samples)
        apart_s = fsum(abs(sample - middle) for sample in self.samples) / len(self.samples)
        self.samples.clear()
        return middle, max(self.noise_s, apart_s)


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
    step_samples: int = 0
    """After so many samples in a row that are far off, on one side, the average is their median; 0: never."""
    delays: Run | None = None
    skews: Run | None = None

    def __post_init__(self) -> None:
        if self.step_samples:
            self.delays, self.skews = Run(self.step_samples), Run(self.step_samples)

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
        elif self.delays is not None and self.delays.add(sample, self.delay_s, self.jitter_s):
            self.delay_s, self.jitter_s = self.delays.end()
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
        if self.samples <= 1:
            self.skew_s = sample
        elif self.skews is not None and self.skews.add(sample, self.skew_s, self._noise_s):
            self.skew_s, _ = self.skews.end()
        else:
            self.skew_s += self.weight * (sample - self.skew_s)

    @property
    def may_step(self) -> bool:
        """Whether the last samples were far off, and the next ones tell whether that is a step."""
        return self.delays is not None and bool(self.delays.samples)

    @property
    def _noise_s(self) -> float:
        """The deviation, without what may be a step."""
        return self.delays.noise_s if self.delays is not None and self.delays.samples else self.jitter_s

    def clock_moved(self, step_s: float, is_trusted: bool) -> None:
        """Our clock shows so much more than before."""
        if self.offset_s is None:
            return
        if self.skews is not None:
            self.skews.shift(-step_s)
        if is_trusted and abs(self.offset_s) <= self.delay_s + CLOCK_SLACK_S:
            self.skew_s = max(-self.delay_s, min(self.delay_s, self.skew_s - step_s))
        self.offset_s -= step_s

    def add_loss(self) -> None:
        """A probe did not come back in time."""
        self.loss += self.weight * (1.0 - self.loss)

    def add_interval(self, usable: bool) -> bool:
        """A probe interval passed with the link usable or not; whether that changed the availability."""
        change = self.weight * ((1.0 if usable else 0.0) - self.availability)
        self.availability += change
        return change != 0.0


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
