"""Which changes of our own links are worth telling, and when. Asked by `telling`.

Losses come in bursts, on many links at a time: news of them alone are damped, so that they are no storm.
"""

from collections.abc import Iterable

from anabranch.overlay.config import Config
from anabranch.overlay.estimators import differs, loss_level
from anabranch.overlay.headers import LinkEntry
from anabranch.overlay.links import Link, LinkTable

UNMEASURED_S = 0.1
"""What a link counts for before its first echo: usable, and not better than one that was measured."""
WORSE_RATIO, WORSE_S = 1.5, 0.005
"""A delay that grew by this much may violate a budget."""
LOSS_PAUSE_MOST_S = 2.0
"""News of losses alone, told again and again, wait longer each time, up to this."""
SHARE_CHANGE = 0.05
"""A loss or availability that moved by this much is worth telling."""


class LinkNews:
    """What was told of our links last, and what is new since."""

    def __init__(self, config: Config, links: LinkTable) -> None:
        self._config = config
        self._links = links
        self._told: dict[str, LinkEntry] = {}
        self._told_at = -1e9
        self._loss_told_at = -1e9
        self._loss_pause_s = config.spread_min_interval_s

    @property
    def is_any(self) -> bool:
        """Whether any link is news."""
        return any(map(self._is_news, self._links.by_peer.values()))

    def told(self, entries: list[LinkEntry], now: float) -> None:
        """All links are told, as they are in these entries."""
        told = self._told
        if any(
            _loses_otherwise(told[entry.neighbour], entry.loss_ppm / 1e6, entry.availability_ppm / 1e6)
            for entry in entries
            if entry.neighbour in told
        ):
            is_again = now - self._loss_told_at < 2 * self._loss_pause_s
            longer_s = min(LOSS_PAUSE_MOST_S, 2 * self._loss_pause_s)
            self._loss_pause_s = longer_s if is_again else self._config.spread_min_interval_s
            self._loss_told_at = now
        self._told = {entry.neighbour: entry for entry in entries}
        self._told_at = now

    def due(self, measured: Iterable[Link], now: float) -> float | None:
        """When to tell our links because these changed; None while there is nothing new."""
        if self._config.spread_interval_s > 0:
            return now if self._config.variant.has_budgets and self._any_worse(measured) else None
        by_peer = self._links.by_peer
        news = [link for link in measured if by_peer.get(link.peer) is link and self._is_news(link)]
        if not news:
            return None
        if any(link.estimate.samples == 1 for link in news):
            return now
        due = self._told_at + self._config.spread_min_interval_s
        if not any(map(self._took_another_time, news)):
            due = max(due, self._loss_told_at + self._loss_pause_s)
        return max(now, due)

    def _any_worse(self, measured: Iterable[Link]) -> bool:
        """Whether a link got so much slower that budgets may be violated: that does not wait for a period."""
        for link in measured:
            told = self._told.get(link.peer)
            if told is None or not link.estimate.samples:
                continue
            if _is_much_worse(told.delay_us / 1e6, link.estimate.there_s):
                return True
        return False

    def _is_news(self, link: Link) -> bool:
        told = self._told.get(link.peer)
        if told is None:
            return True
        if not link.estimate.samples:
            return False
        return self._took_another_time(link) or _loses_otherwise(told, link.loss, link.estimate.availability)

    def _took_another_time(self, link: Link) -> bool:
        config, told = self._config, self._told.get(link.peer)
        if told is None:
            return True
        told_s, there_s = told.delay_us / 1e6, link.estimate.there_s
        if link.estimate.may_step and not _is_much_worse(told_s, there_s):
            return False
        return differs(told_s, there_s, config.spread_change_ratio, config.spread_change_s)


def entry_of(link: Link) -> LinkEntry:
    """A link as it is told."""
    estimate = link.estimate
    delay_s = estimate.there_s if estimate.samples else UNMEASURED_S
    return LinkEntry(
        link.peer,
        int(delay_s * 1e6),
        int(estimate.jitter_s * 1e6),
        int(link.loss * 1e6),
        int(estimate.availability * 1e6),
        link.is_client,
    )


def _is_much_worse(told_s: float, there_s: float) -> bool:
    return there_s > max(WORSE_RATIO * told_s, told_s + WORSE_S)


def _loses_otherwise(told: LinkEntry, loss: float, availability: float) -> bool:
    """Whether these shares are worth telling."""
    told_loss = told.loss_ppm / 1e6
    return (
        abs(told_loss - loss) >= SHARE_CHANGE
        or loss_level(told_loss) != loss_level(loss)
        or abs(told.availability_ppm / 1e6 - availability) >= SHARE_CHANGE
    )
