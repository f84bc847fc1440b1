"""Topics in blocking form: the part of `blocking.Peer` that creates, discovers and grants them."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from anabranch._crossing import LoopThread
from anabranch.overlay.errors import ClosedError
from anabranch.transport import peer as asynchronous
from anabranch.transport.message import Message

if TYPE_CHECKING:
    from anabranch.security.synopses import Value
    from anabranch.transport.topics.asking import Located
    from anabranch.transport.topics.topic import GrantGiven, TopicPublisher, TopicSubscription
    from anabranch.transport.topics.topic import Topic as AsyncTopic


class Found(msgspec.Struct, frozen=True):
    """What a search for topics brought; as `anabranch.transport.topics.office.Found`."""

    topics: "tuple[Topic, ...]"
    answered: tuple[str, ...]
    unanswered: tuple[str, ...]
    partial: bool
    from_creators: bool


class Topical:
    """A base of `blocking.Peer`."""

    _thread: LoopThread
    _inner: asynchronous.Peer

    def create_topic(self, synopsis: "str | int | Mapping[str, Value]", **options: Any) -> "Topic":
        """A new topic; the options are those of `anabranch.Peer.create_topic`."""
        return Topic(self._thread, self._thread.call(self._inner.create_topic(synopsis, **options)))

    def discover(self, query: str = "", **options: Any) -> Found:
        """Look for topics; the options are those of `anabranch.Peer.discover`."""
        found = self._thread.call(self._inner.discover(query, **options))
        topics = tuple(Topic(self._thread, each) for each in found.topics)
        return Found(topics, found.answered, found.unanswered, found.partial, found.from_creators)

    def locate_tdns(self, *, within: float = 0.25, first: bool = False) -> "list[Located]":
        """The discovery nodes that answer within so many seconds, the quickest first; or just that one."""
        return self._thread.call(self._inner.locate_tdns(within=within, first=first))

    def use_grant(self, grant: bytes | str | Path) -> "Topic":
        """Use a grant that was made for this peer, as bytes or from a file."""
        return Topic(self._thread, self._thread.run(lambda: self._inner.use_grant(grant)))

    def known_topics(self) -> "list[Topic]":
        """Topics that this peer created, and restricted ones that it holds rights to."""
        return [Topic(self._thread, each) for each in self._thread.run(self._inner.known_topics)]


class Topic:
    """One advertised topic; its attributes are those of `anabranch.transport.topics.topic.Topic`."""

    def __init__(self, thread: LoopThread, inner: "AsyncTopic") -> None:
        self._thread = thread
        self._inner = inner
        self.id = inner.id
        self.synopsis = inner.synopsis
        self.creator = inner.creator
        self.restricted = inner.restricted
        self.sealed = inner.sealed
        self.name = inner.name
        self.attributes = inner.attributes

    def __repr__(self) -> str:
        return repr(self._inner)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topic) and other._inner == self._inner

    def __hash__(self) -> int:
        return hash(self._inner)

    def as_dict(self) -> dict[str, Any]:
        """Everything that is advertised, in JSON types."""
        return self._inner.as_dict()

    def publisher(self, **options: Any) -> "Publisher":
        """A publisher of the topic; a restricted one needs a grant."""
        return Publisher(self._thread, self._thread.call(self._inner.publisher(**options)))

    def subscribe(self, **options: Any) -> "Subscription":
        """A subscription to the topic; a restricted one needs a grant."""
        return Subscription(self._thread, self._thread.run(lambda: self._inner.subscribe(**options)))

    def grant(self, holder: str, **options: Any) -> "GrantGiven":
        """Let a peer publish, subscribe or both: `publish`, `subscribe`, `until`, `delegate`."""
        return self._thread.call(self._inner.grant(holder, **options))

    def revoke(self, holder: str) -> list[str]:
        """Take back what a peer was granted; the discovery nodes that know."""
        return self._thread.call(self._inner.revoke(holder))

    def advertise(self, tdns: Sequence[str] | None = None) -> list[str]:
        """Give it to discovery nodes, all or these; those that keep it."""
        return self._thread.call(self._inner.advertise(list(tdns) if tdns is not None else None))


class Publisher:
    """Publishes to one topic."""

    def __init__(self, thread: LoopThread, inner: "TopicPublisher") -> None:
        self._thread = thread
        self._inner = inner

    def put(self, payload: object, *, attributes: Mapping[str, object] | None = None) -> None:
        """Publish."""
        self._thread.call(self._inner.put(payload, attributes=attributes))

    def close(self) -> None:
        """Nothing more is put."""
        if not self._thread.refusal:
            self._thread.run(self._inner.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Subscription:
    """Messages of one topic."""

    def __init__(self, thread: LoopThread, inner: "TopicSubscription") -> None:
        self._thread = thread
        self._inner = inner

    def receive(self, timeout: float | None = None) -> Message:
        """The next message; TimeoutError when none comes in time."""
        return self._thread.call(self._inner.receive(timeout))

    def __iter__(self) -> Iterator[Message]:
        """Messages as they come, until it is closed."""
        while True:
            try:
                message = self.receive()
            except ClosedError:
                return
            yield message

    def close(self) -> None:
        """Want nothing more."""
        if not self._thread.refusal:
            self._thread.run(self._inner.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
