"""What the node wants its shell to do. Plain values, taken with `Node.take_actions()`."""

from collections.abc import Sequence

import msgspec

from anabranch.overlay.asking import Protocol, RequestKey
from anabranch.overlay.assured import StreamKey
from anabranch.overlay.bundles import OutBundle
from anabranch.overlay.identifiers import LinkId, SubscriptionId
from anabranch.overlay.intakes import Intake
from anabranch.overlay.qos import Unconfirmed
from anabranch.overlay.records import LogRecord
from anabranch.overlay.selections import Selected


class SendControl(msgspec.Struct, gc=False):
    """Put a control frame into the link's queue."""

    link: LinkId
    frame: bytes


class SendBundle(msgspec.Struct):
    """Put a bundle into the link's queue."""

    link: LinkId
    bundle: OutBundle


class DeliveredRun(msgspec.Struct):
    """Consecutive messages of one publisher, ready for the application."""

    topic: str
    origin: str
    publisher: int
    first_sequence: int
    payloads: Sequence[object]
    age_s: float
    """Elapsed time since the oldest of them was put, by the clocks of the peers on the way."""
    received_at: float
    deadline_s: float
    """0 when the publisher set none."""
    path: tuple[str, ...]
    """Peers passed, the origin first, this peer last."""
    epoch: int = 0
    """Of the origin."""
    has_copies: bool = False
    """Whether it also comes over other paths."""
    repeated: int = 0
    """Messages of its stream that were dropped as repeated since the run before."""


class SelectedDelivery(DeliveredRun, kw_only=True):
    """A run that says whom it is for."""

    selected: Selected


class AssuredDelivery(DeliveredRun, kw_only=True):
    """A run of a publisher with a guarantee."""

    intake: Intake
    """Where its consumer stands with the stream."""
    selected: Selected | None = None
    """Whom it is for, if the topic alone does not decide that."""


class Deliver(msgspec.Struct):
    """Hand a run to these subscriptions."""

    subscriptions: tuple[SubscriptionId, ...]
    run: DeliveredRun


class DeliverAssured(msgspec.Struct):
    """Ask `Node.hand` how much of a run may be handed to these subscriptions, which have room for so much."""

    subscriptions: tuple[SubscriptionId, ...]
    run: AssuredDelivery


class Failure(msgspec.Struct, frozen=True):
    """Messages that a receiver of theirs did not confirm, and will not be asked for any more."""

    peer: str
    consumer: str
    """Name of its durable subscription; empty for the others."""
    first: int
    end: int
    """The first message that it does not concern."""
    reason: Unconfirmed


class Settled(msgspec.Struct):
    """Every message of this stream before `floor` was confirmed by all its receivers or is among failures."""

    stream: StreamKey
    floor: int
    failures: list[Failure]


class Load(msgspec.Struct):
    """Read messages of a persistent stream; answer with `Node.loaded`."""

    stream: StreamKey
    first: int
    bytes_max: int


class KeepConsumer(msgspec.Struct):
    """Write down that messages are kept for this durable subscription of another peer; before later puts."""

    peer: str
    name: str
    pattern: str


class KeepProgress(msgspec.Struct):
    """Write down how far durable subscriptions are with a stream; what lies before `floor` may go."""

    stream: StreamKey
    confirmed: list[tuple[str, str, int]]
    """(peer, name, next message)."""
    floor: int


class ForgetConsumer(msgspec.Struct):
    """A durable subscription of another peer will not come back."""

    peer: str
    name: str


class Dial(msgspec.Struct):
    """Connect to an address; answer with `link_opened` or `dial_failed`."""

    address: str


class CloseLink(msgspec.Struct):
    """Close the connection once what is queued for it has left."""

    link: LinkId
    reason: str


class Write(msgspec.Struct):
    """Write a record to the logs."""

    record: LogRecord


class SubscribersChanged(msgspec.Struct):
    """Who wants what, or who can be reached, may have changed; wake those who wait for it."""


class Reported(msgspec.Struct):
    """A neighbour answered an inspection."""

    link: LinkId
    token: int
    document: bytes


class DeliveredRequest(DeliveredRun, kw_only=True):
    """A publication that asks for a reply, for one subscription."""

    key: RequestKey
    subscriber: int
    """Which of this peer's subscribers to the request: it answers once."""
    expects: list[list[object]]
    to: str
    """The sites it is for; empty for all."""
    replying: object = None
    """Who takes the answer; shells set it."""


class DeliverRequest(msgspec.Struct):
    """Hand a request to a subscription; `Node.reply` and `Node.decline` answer it."""

    subscription: SubscriptionId
    run: DeliveredRequest


class Reply(msgspec.Struct, frozen=True):
    """One reply."""

    site: str
    subscriber: int
    value: object


class RepliesArrived(msgspec.Struct):
    """New replies to a request of ours."""

    number: int
    replies: list[Reply]


class Missing(msgspec.Struct, frozen=True):
    """A site whose replies are not, or not all, in the result."""

    site: str
    where: str
    """The hop, or the peer, where the way ends as far as is known."""
    why: str


class Harvested(msgspec.Struct, frozen=True):
    """What became of a request."""

    value: object
    """Merged, or a list of the replies."""
    complete: bool
    """Whether every site that was asked has said all."""
    asked: tuple[str, ...]
    answered: int
    declined: int
    missing: tuple[Missing, ...]
    outstanding: int
    """Sites that had not said all; each holds one reply at least."""
    error: str = ""
    """Why there is no value: the application's merge failed."""


class HarvestOver(msgspec.Struct):
    """A request of ours has ended."""

    number: int
    result: Harvested
    topic: str
    protocol: Protocol
    merge: str


class SnapshotTaken(msgspec.Struct):
    """An intermediate result that was asked for."""

    number: int
    token: int
    result: Harvested


class SendAside(msgspec.Struct):
    """Send replies past the mesh, to an address (`direct`, `datagram`) or a topic (`publish`)."""

    protocol: Protocol
    address: str
    frame: bytes


class QuestionCame(msgspec.Struct):
    """Another peer asks something; `Node.answer` answers it, and silence is an answer too."""

    asker: str
    token: int
    letter: bytes
    is_flooded: bool
    """Whether everybody is asked."""


class AnswerCame(msgspec.Struct):
    """A peer answers a question of ours."""

    token: int
    origin: str
    letter: bytes


class QuestionOver(msgspec.Struct):
    """No further answer comes to a question of ours."""

    token: int
    unanswered: tuple[str, ...]
    """Who did not answer, of those who should have."""


Action = (
    SendControl
    | SendBundle
    | Deliver
    | DeliverAssured
    | Settled
    | Load
    | KeepConsumer
    | KeepProgress
    | ForgetConsumer
    | Dial
    | CloseLink
    | Write
    | SubscribersChanged
    | Reported
    | DeliverRequest
    | RepliesArrived
    | HarvestOver
    | SnapshotTaken
    | SendAside
    | QuestionCame
    | AnswerCame
    | QuestionOver
)
