"""Requests in blocking form: the part of `blocking.Peer` that asks for replies."""

from collections.abc import Callable
from typing import Any

from anabranch._crossing import LoopThread
from anabranch._ends import Harvest
from anabranch.overlay.asking import Protocol
from anabranch.transport import peer as asynchronous


class Requesting:
    """A base of `blocking.Peer`."""

    _thread: LoopThread
    _inner: asynchronous.Peer

    def request(
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
        """Publish, and ask everybody who wants the topic for a reply: iterate, or `wait` for the result.

        The options are those of `anabranch.Peer.request`.
        """
        inner = self._thread.call(
            self._inner.request(
                topic,
                payload,
                to=to,
                merge=merge,
                expects=expects,
                within=within,
                protocol=protocol,
                tau=tau,
            )
        )
        return Harvest(self._thread, inner)

    def register_merge(
        self,
        name: str,
        merge: Callable[[Any, Any], Any],
        *,
        lift: Callable[[Any], Any] | None = None,
        finish: Callable[[Any], Any] | None = None,
    ) -> None:
        """Make a merge of replies known to this peer; it is called in the thread of the peer's loop."""
        self._thread.run(lambda: self._inner.register_merge(name, merge, lift=lift, finish=finish))
