"""Single replies carry proof of their site for the publisher, for peers on the way gather them anew.

Made where a site speaks, checked where the publisher counts. In an open mesh there is nothing to prove.
"""

import msgspec

from anabranch.overlay.asking import Protocol, RequestKey
from anabranch.overlay.codec import encode_body
from anabranch.overlay.counters import Counters
from anabranch.overlay.errors import DropReason
from anabranch.overlay.replywire import Report, Request
from anabranch.overlay.sealing import Sealing

Entry = tuple[int, int, bool, msgspec.Raw, bytes]


class Vouching:
    """Vouches for what our subscribers say, and sifts what others are said to have said."""

    def __init__(self, sealing: Sealing | None, counters: Counters) -> None:
        self._sealing = sealing
        self._counters = counters

    @property
    def is_secured(self) -> bool:
        """Whether anything has to be proven."""
        return self._sealing is not None

    def entry(self, key: RequestKey, site: int, subscriber: int, answered: bool, value: msgspec.Raw) -> Entry:
        """A single reply of ours as it travels."""
        return site, subscriber, answered, value, self._say(key, (site, subscriber, answered, bytes(value)))

    def ended(self, key: RequestKey, site: int, subscribers: int) -> tuple[int, int, bytes]:
        """That we have said all."""
        return site, subscribers, self._say(key, (site, subscribers))

    def sift(self, report: Report, request: Request) -> None:
        """Take out of a report what does not come from the site that it names."""
        sites = request.audience.names
        report.ended = [each for each in report.ended if 0 <= each[0] < len(sites)]
        sealing = self._sealing
        if sealing is None:
            return
        key = report.key
        entries = []
        for entry in report.entries:
            site, subscriber, answered, value, proof = entry
            part = encode_body((*key, site, subscriber, answered, bytes(value)))
            if 0 <= site < len(sites) and sealing.is_vouched(sites[site], part, proof):
                entries.append(entry)
        ended = [
            each
            for each in report.ended
            if sealing.is_vouched(sites[each[0]], encode_body((*key, each[0], each[1])), each[2])
        ]
        refused = len(report.entries) + len(report.ended) - len(entries) - len(ended)
        report.entries, report.ended = entries, ended
        if request.protocol is not Protocol.MERGE:
            refused += len(report.merged)
            report.merged = []
        if refused:
            self._counters.drop(DropReason.FORGED, refused)

    def _say(self, key: RequestKey, what: tuple[object, ...]) -> bytes:
        if self._sealing is None:
            return b""
        return self._sealing.vouch(key.origin, encode_body((*key, *what)))
