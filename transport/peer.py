"""The public face: a peer of the mesh in this process."""

import asyncio
import random
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from anabranch.overlay.actions import Deliver
from anabranch.overlay.addresses import parse_address
from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.errors import ClosedError, UsageError
from anabranch.overlay.identifiers import PeerId, SubscriptionId
from anabranch.overlay.node import Node
from anabranch.overlay.patterns import check_pattern
from anabranch.overlay.profiles import Profile
from anabranch.overlay.qos import Guarantee, Overflow, Role
from anabranch.overlay.selections import site_topic
from anabranch.transport.assured import demand_of, open_publisher, terms_of
from anabranch.transport.awaiting import Awaiting
from anabranch.transport.beacons import Beacon
from anabranch.transport.endpoints import advertisable, dialable, texts
from anabranch.transport.hosting import PeerHost, make_beacon
from anabranch.transport.identities import choose_identity, say_open
from anabranch.transport.logwriter import LogWriter
from anabranch.transport.profiles import load_profile
from anabranch.transport.publisher import Publisher
from anabranch.transport.requesting import Requesting
from anabranch.transport.shell import Shell
from anabranch.transport.subscription import QUEUE_MAX, Callback, Subscription
from anabranch.transport.topics.api import Topical, open_office, tdn_role
from anabranch.transport.topics.policy import Tdn
from anabranch.transport.watched import OnMissed, make_subscription

if TYPE_CHECKING:
    from anabranch.transport.persistence import Persistence

CLOSE_DEADLINE_S = 2.0
TOPIC_PUBLISHERS_MAX = 256
"""Publishers that `Peer.put` keeps open for topics it was used with."""


class Peer(Requesting, Topical, Awaiting):
    """One peer of a mesh.

        async with Peer("tower-7", listen="tcp://127.0.0.1:7400", identity="tower-7") as peer:
            ...

    `listen`: addresses to accept links on (`tcp://HOST:PORT`, port 0 for any free one, or `ipc://PATH`).
    `join`: addresses of peers of the mesh; one that answers is enough, it tells of the others.
    `advertise`: addresses to tell the mesh instead of the bound ones (behind NAT, or with a wildcard).
    `beacon`: a UDP multicast group (`udp://239.192.7.40:7400`) to find neighbours by, `beacon_unicast` the
    hosts to ask where multicast does not reach.
    `identity`: this peer's certificate and key (`anabranch keys issue` makes them): links are encrypted, and
    only peers of the same authority take part. `open=True`: anybody may. One of the two must be given, here
    or by ANABRANCH_IDENTITY or ANABRANCH_OPEN=1.
    `log_dir`: where to write probe, link, route and delivery records; None writes none.
    `store_dir`: where to keep what persistent publishers put and how far durable subscriptions are.
    `tdn`: make it a topic discovery node that keeps topics in this directory; see `Tdn` for its policy.
    `profile`: what was learned about links, as `anabranch analyze` writes it; see `load_profile`.
    """

    def __init__(
        self,
        name: str,
        *,
        listen: str | Sequence[str] = (),
        join: str | Sequence[str] = (),
        advertise: str | Sequence[str] = (),
        config: Config | None = None,
        beacon: str | None = None,
        beacon_unicast: Sequence[str] = (),
        log_dir: str | Path | None = None,
        store_dir: str | Path | None = None,
        profile: str | Path | Profile | None = None,
        identity: str | Path | None = None,
        open: bool = False,  # noqa: A002 - the word that people say; open() is not used here
        tdn: str | Path | Tdn | None = None,
    ) -> None:
        self.name = PeerId.parse(name)
        self.config = config or Config()
        self.identity = choose_identity(self.name, identity, open, self.config)
        """What this peer signs and checks with; None in an open mesh."""
        self.addresses: list[str] = []
        """Where this peer accepts links, with real ports; filled when it is entered."""
        self._listen = [parse_address(text) for text in texts(listen)]
        self._join = [str(dialable(text)) for text in texts(join)]
        self._advertise = [str(dialable(text)) for text in texts(advertise)]
        if beacon_unicast and not beacon:
            raise UsageError(
                f"beacon_unicast = {list(beacon_unicast)}: name the group as well, as in "
                "beacon='udp://239.192.7.40:7400'; unicast beacons arrive at its port"
            )
        self._beacon_group = beacon or ""
        self._beacon_unicast = list(beacon_unicast)
        self._profile = load_profile(profile) if isinstance(profile, str | Path) else profile
        self._log_dir = Path(log_dir) if log_dir is not None else None
        self._store_dir = Path(store_dir) if store_dir is not None else None
        self._tdn = tdn_role(self.name, tdn, self.identity)
        self._persistence: Persistence | None = None
        if self.config.role is Role.CLIENT and (self._listen or not (self._join or beacon)):
            raise UsageError(f"client {name!r}: a light client takes join= addresses and does not listen")
        self._shell: Shell | None = None
        self._node: Node | None = None
        self._writer: LogWriter | None = None
        self._beacon: Beacon | None = None
        self._subscriptions: dict[SubscriptionId, Subscription] = {}
        self._publishers: dict[str, Publisher] = {}
        super().__init__()
        self._was_opened = False

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Bind, dial, begin. Links come up on their own afterwards; see `wait_for_links`."""
        if self._was_opened:
            raise UsageError(f"peer {self.name} was opened before: make a new Peer")
        self._was_opened = True
        epoch = time.time_ns() // 1000
        node = Node(
            self.name,
            self.config,
            epoch=epoch,
            rng=random.Random(secrets.randbits(64)),  # noqa: S311 - spreads load, guards nothing
            seeds=self._join,
            addresses=(),
            signer=self.identity.signer if self.identity else None,
            verifier=self.identity.verifier if self.identity else None,
            rights=self.identity.rights if self.identity else None,
        )
        if self._profile is not None:
            node.use_profile(self._profile)
        self._node = node
        if self.identity is not None:
            self.identity.counters = node.counters
        elif self._listen:
            say_open(self.name)
        if self._store_dir is not None:
            from anabranch.transport.persistence import Persistence  # SQLite takes 2 MB

            self._persistence = await Persistence.open(self._store_dir, node)
        if self._log_dir is not None:
            offset_us = epoch - int(time.monotonic() * 1e6)
            self._writer = LogWriter(self._log_dir, str(self.name), wall_offset_us=offset_us)
        write = self._writer.write if self._writer is not None else None
        domain = self.identity.domain if self.identity else None
        shell = self._shell = Shell(node, self._deliver, self._notify, write, self._subscriptions, domain)
        try:
            self.addresses = shell.listen(self._listen)
            node.set_addresses(self._advertise or advertisable(self.addresses))
            shell.start()
            if self.identity is not None:
                self.identity.watch(shell)
                self._office = open_office(self, shell, self.identity, self._tdn, self._store_dir)
            if self._persistence is not None:
                self._persistence.start(shell)
            if self._beacon_group:
                self._beacon = make_beacon(
                    self._beacon_group,
                    shell,
                    lambda: self._advertise or advertisable(self.addresses),
                    self._beacon_unicast,
                )
                await self._beacon.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Say farewell, flush, free everything; within about two seconds. Calling it again does nothing."""
        shell, self._shell = self._shell, None
        if shell is None:
            return
        if self.identity is not None:
            self.identity.unwatch()
        if self._beacon is not None:
            await self._beacon.close()
        if self._office is not None:
            await self._office.close()
        await shell.close(CLOSE_DEADLINE_S)
        if self._persistence is not None:
            await self._persistence.close()
        for subscription in list(self._subscriptions.values()):
            subscription.close()
        if self._writer is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._writer.close)
        self._notify()

    async def publisher(
        self,
        topic: str,
        *,
        deadline: float | None = None,
        availability: float | None = None,
        overflow: str | Overflow = Overflow.BLOCK,
        guarantee: str | Guarantee | None = None,
        rate_max: float | None = None,
        queued_max_bytes: int | None = None,
    ) -> Publisher:
        """A publisher of one topic.

        `deadline`: seconds from put to arrival; paths are chosen to keep it, and later messages are marked
        `late` at the receiver.
        `availability`: the share of time in which at least one path to each receiver shall work, such as
        0.9999; messages take as many paths at a time as that needs. `Publisher.availability` tells what is
        reached.
        `overflow`: `block` makes `put` wait while a link on the way has no room but makes progress;
        otherwise it never waits, and what finds no room is dropped and counted (`dropped.queue_full`).
        `guarantee`: `acknowledged` sends again until each receiver confirmed; it makes an `AssuredPublisher`.
        `persistent` also writes each message to the peer's store (`store_dir`) before `put` returns.
        `rate_max`: messages per second; the rest waits, or is dropped if not `block`; see `Config.topics`.
        `queued_max_bytes`: so much may wait in the queues of links; the rest waits, or is dropped likewise.
        """
        shell = self._running()
        demand = demand_of(deadline, availability)
        terms = terms_of(self.config.topics, topic, guarantee, rate_max, queued_max_bytes)
        if terms.guarantee is Guarantee.PERSISTENT:
            self._persistent(f"guarantee = 'persistent' for {topic!r}")
        outlet = shell.node.open_publisher(topic, time.monotonic(), demand)
        return await open_publisher(self, shell, outlet, _overflow(overflow), terms, self._persistence)

    async def put(
        self,
        topic: str | None,
        payload: object,
        *,
        attributes: Mapping[str, object] | None = None,
        to: str | None = None,
    ) -> None:
        """Publish once. For a topic that is published to often, keep a `publisher`.

        `attributes` and `to` as in `Publisher.put`. Without a topic (None), what is put `to` sites reaches
        those of them that subscribed to the topic `@site`.
        """
        if topic is None:
            topic = site_topic("put", to)
        publisher = self._publishers.get(topic)
        if publisher is None:
            if len(self._publishers) >= TOPIC_PUBLISHERS_MAX:
                self._publishers.pop(next(iter(self._publishers))).close()
            publisher = self._publishers[topic] = await self.publisher(topic)
        await publisher.put(payload, attributes=attributes, to=to)

    def subscribe(
        self,
        pattern: str,
        *,
        where: str | None = None,
        callback: Callback | None = None,
        queue_max: int = QUEUE_MAX,
        overflow: str | Overflow = Overflow.DROP_OLDEST,
        durable: str | None = None,
        auto_accept: bool = True,
        on_missed: OnMissed | None = None,
        silence: float | None = None,
    ) -> Subscription:
        """Want every topic that matches (`*` one level, `**` any number).

        `where`: a condition over the attributes of publications, such as "altitude > 10000"; only those for
        which it is true are sent here. What its names may be, `docs/addressing.md` tells.
        `callback`, plain or async, is called for each message, one at a time; otherwise iterate. The queue
        holds `queue_max` messages; then `drop_oldest`, `drop_newest`, or `block`: publishers that block
        are asked to pause, and this peer stops reading as long as the application goes on taking messages;
        once it takes none for 0.3 s, what comes beyond twice the queue is dropped, the newest first.

        `durable`: a name under which it outlives this process: messages of persistent publishers wait for
        it, and each is accepted once: by asking for the next, or only by `await message.accept()` if
        `auto_accept` is False.
        `on_missed` is called with a `Missed` for late messages, gaps, and each `silence` seconds without any.
        """
        shell = self._running()
        policy = _overflow(overflow)
        check_pattern(pattern)
        host = PeerHost(self._subscriptions, shell)
        if durable is not None:
            if where is not None:
                raise UsageError(
                    f"where with durable = {durable!r}: persistent publishers put whole topics, so there is "
                    "nothing to filter by; give a topic of its own to what only some shall keep"
                )
            if on_missed is not None or silence is not None:
                raise UsageError(f"on_missed with durable = {durable!r}: nothing is missed there; it waits")
            persistence = self._persistent(f"durable = {durable!r}")
            subscription: Subscription = persistence.subscription(
                host, pattern, queue_max, callback, durable, auto_accept
            )
            number = subscription.id
        else:
            number = shell.node.subscribe(pattern, time.monotonic(), where=where)
            try:
                subscription = make_subscription(
                    host, number, pattern, queue_max, policy, callback, on_missed, silence
                )
            except UsageError:
                shell.node.unsubscribe(number, time.monotonic())
                raise
        self._subscriptions[number] = subscription
        shell.turn()
        return subscription

    async def forget_durable(self, name: str) -> None:
        """End a durable subscription for good: publishers keep nothing for it any more."""
        self._running()
        await self._persistent(f"durable = {name!r}").forget_durable(name)

    def set_attributes(self, attributes: Mapping[str, object]) -> None:
        """Declare what this site is, for messages that select receivers by it; replaces earlier ones.

        Numbers, texts, booleans, and sets (or lists) of numbers and texts. In effect here at once, in
        the whole mesh as soon as the news has spread.
        """
        shell = self._running()
        shell.node.set_attributes(attributes, time.monotonic())
        shell.turn()

    def report(self) -> dict[str, object]:
        """This peer's own view: links, routes, mesh, counters."""
        return self._running().node.report(time.monotonic())

    async def inspect(self, peer: str | None = None, *, timeout: float = 5.0) -> dict[str, object]:
        """The view of a neighbour (by default the only one), as its own `report()` gives it."""
        shell = self._running()
        links = shell.node.links.by_peer
        link = links.get(peer) if peer is not None else next(iter(links.values()), None)
        if link is None:
            raise UsageError(f"no link to {peer!r}: one of {', '.join(links) or 'none'}")
        token = secrets.randbits(62)
        future = shell.reports[token] = asyncio.get_running_loop().create_future()
        try:
            shell.node.inspect(link.id, token, time.monotonic())
            shell.turn()
            document = await asyncio.wait_for(future, timeout)
        finally:
            shell.reports.pop(token, None)
        view: dict[str, object] = msgspec.json.decode(document)
        return view

    @property
    def counters(self) -> Counters:
        """What happened how often, drops by reason included."""
        if self._node is None:
            return Counters()
        if self._writer is not None:
            self._node.counters["records_dropped"] = self._writer.dropped
        return self._node.counters

    # Inside

    def _running(self) -> Shell:
        if self._shell is None:
            opening = f'async with Peer("{self.name}", ...)'
            state = "is closed" if self._was_opened else f"is not open: {opening}"
            raise ClosedError(f"peer {self.name} {state}")
        self._shell.gate.check()
        return self._shell

    def _persistent(self, what: str) -> "Persistence":
        if self._persistence is None:
            raise UsageError(f"{what}: peer {self.name} has no store; give it one with store_dir=DIRECTORY")
        return self._persistence

    def _deliver(self, action: Deliver) -> None:
        for subscription_id in action.subscriptions:
            subscription = self._subscriptions.get(subscription_id)
            if subscription is not None:
                subscription.offer(action.run)


def _overflow(value: str | Overflow) -> Overflow:
    try:
        return Overflow(value)
    except ValueError:
        raise UsageError(f"overflow = {value!r}: one of {', '.join(Overflow)}") from None
