"""Requests as a peer's application makes them: the part of `Peer` that asks for replies."""

from collections.abc import Callable
from typing import Any

from anabranch.overlay.addresses import parse_address
from anabranch.overlay.asking import Protocol
from anabranch.overlay.selections import site_topic
from anabranch.transport.endpoints import advertisable
from anabranch.transport.harvest import Harvest
from anabranch.transport.shell import Shell


class Requesting:
    """A base of `Peer`."""

    addresses: list[str]
    _advertise: list[str]

    def _running(self) -> Shell:
        raise NotImplementedError

    def _reply_host(self) -> str:
        """Where replies past the mesh can reach this host."""
        for text in self._advertise or advertisable(self.addresses):
            address = parse_address(text)
            if address.scheme == "tcp":
                return address.host
        return "127.0.0.1"

    async def request(
        self,
        topic: str | None,
        payload: object = None,
        *,
        to: str | None = None,
        merge: str = "",
        expects: object = None,
        within: float = 30.0,
        protocol: str | Protocol | None = None,
        tau: float | None = None,
    ) -> Harvest:
        """Publish, and ask everybody who wants the topic for a reply: `await` the result, or iterate.

        `to`: only those among the sites for which this expression over their attributes is true, such as
        "region = 'north' and load > 0.8". Without a topic (None) it asks those of them that subscribed to
        `@site`. A site that matches no more when the request arrives is not asked: it counts as one that had
        nothing to say.
        `merge`: make one value of all replies: histogram, count, sum, min, max, mean, top (`top:5`),
        quantiles (`quantiles:0.5,0.99`), distinct, collect, or one registered with `register_merge`.
        `expects`: int, float, str, bool, bytes, list, dict, or the values that are allowed; others are
        refused where they are given.
        `within`: seconds until the best partial result is delivered, which names who is missing.
        `protocol`: how replies travel: `converge` (the default without a merge), `merge` (the default with
        one), `stateless`, `publish`, `direct` or `datagram`. The last three end after `tau` seconds of
        silence.
        """
        shell = self._running()
        if topic is None:
            topic = site_topic("request", to)
        return await shell.replying.request(
            topic,
            payload,
            protocol=protocol,
            merge=merge,
            expects=expects,
            within=within,
            tau=tau,
            to=to,
            host=self._reply_host(),
        )

    def register_merge(
        self,
        name: str,
        merge: Callable[[Any, Any], Any],
        *,
        lift: Callable[[Any], Any] | None = None,
        finish: Callable[[Any], Any] | None = None,
    ) -> None:
        """Make a merge of replies known to this peer, for its own requests and those that pass it.

        `merge(a, b)` makes one state of two; it must not matter in which order states are merged. `lift`
        makes a state of a reply, `finish` the result of the last state; by default both leave it as it is.
        States travel as msgpack. A peer that does not know the merge passes replies on as they are.
        """
        self._running().node.register_merge(name, merge, lift, finish)
