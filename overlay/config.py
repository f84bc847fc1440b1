"""Every setting of a node, with its unit in the name and the reason for its default.

Built once at the edge (arguments, environment, TOML file: `transport/settings.py`) and frozen.
"""

import msgspec

from anabranch.overlay.attributes import check_model
from anabranch.overlay.errors import UsageError
from anabranch.overlay.qos import Guarantee, Role, Variant

_POSITIVE = (
    "probe_interval_s",
    "probe_fast_interval_s",
    "suspect_after_s",
    "hello_timeout_s",
    "dial_interval_s",
    "record_refresh_s",
    "reply_check_s",
)


class TopicRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What holds for publishers of topics that match, unless they ask for something else themselves."""

    pattern: str
    guarantee: Guarantee = Guarantee.BEST_EFFORT
    rate_max: float = 0.0
    """Messages per second and publisher; 0: no limit."""
    queued_max_bytes: int = 0
    """Bytes of one best-effort publisher that may wait in the queues of links; 0: no limit of its own."""

    def __post_init__(self) -> None:
        if not 0 <= self.rate_max < float("inf"):
            raise UsageError(f"rate_max = {self.rate_max} for {self.pattern!r}: must not be negative")
        if self.queued_max_bytes < 0:
            raise UsageError(
                f"queued_max_bytes = {self.queued_max_bytes} for {self.pattern!r}: must not be negative"
            )
        if self.queued_max_bytes and self.guarantee is not Guarantee.BEST_EFFORT:
            raise UsageError(
                f"queued_max_bytes for {self.pattern!r}: for best effort alone; with guarantee = "
                f"{self.guarantee.value!r} set unconfirmed_max_bytes or store_max_bytes"
            )


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one node. `Config()` suits a wide-area mesh; see `local()`, `lan()` and `harmony()`."""

    role: Role = Role.PEER
    variant: Variant = Variant.ADAPTIVE
    """Which path selection publications use."""

    # Watching links
    ewma_weight: float = 0.25
    """Weight of a new sample in delay, jitter, loss and availability (Harmony, section 2.1)."""
    step_probes: int = 3
    """After so many probes in a row far from the average, on one side of it, the delay is their median: a
    network that changed is followed after these, where the average takes ten. 0: the average alone."""
    probe_interval_s: float = 0.25
    """Pause between probes of a link: four per second find a dead one within a second, for 30 B each."""
    probe_fast_interval_s: float = 0.1
    """Pause between probes of a link that went silent, so that one lost probe is no verdict."""
    suspect_after_s: float = 0.6
    """Silence after which a link is avoided locally; twice its round trip is added."""
    down_after_s: float = 1.0
    """Silence after which a link is given up and announced; three times its round trip is added."""
    hello_timeout_s: float = 3.0
    """How long a connection may take to complete its hello before it is closed."""

    # Spreading what is known
    spread_min_interval_s: float = 0.2
    """Least pause between two link-state records of one peer; failures skip it. Damps storms."""
    attributes_interval_s: float = 0.05
    """Least pause between two records of what one site is: changes that come faster are told together."""
    spread_change_ratio: float = 0.10
    """A changed delay is worth telling when it differs by this share …"""
    spread_change_s: float = 0.003
    """… and by this much: less never changes a route that matters."""
    spread_interval_s: float = 0.0
    """When positive, link state also spreads on this period, as in Harmony's evaluation (10 s)."""
    record_refresh_s: float = 60.0
    """A peer repeats its unchanged records this often."""
    record_lifetime_s: float = 200.0
    """A record not refreshed for this long is forgotten: three refreshes and some slack."""
    orphan_grace_s: float = 30.0
    """Records of a peer that no path reaches are forgotten after this long."""
    search_interval_s: float = 0.0
    """When positive, paths are compared only this often (Harmony: 30 s); otherwise after each change."""
    switch_threshold: float = 0.20
    """A working path is left only for one that is faster by this share, so that paths don't flap."""

    # The mesh
    neighbours_target: int = 4
    """A peer dials others it hears of until it has this many links; 0 keeps to the join addresses."""
    neighbours_own_target: int = 2
    """Of its links a peer dials so many itself (up to half of its target), however many others dialled it:
    who dials in numbers does not choose all of its neighbours."""
    dial_interval_s: float = 1.0
    """Pause between two looks for further neighbours."""

    # The data plane
    payload_max_bytes: int = 16 * 1024 * 1024
    """Largest payload that `put` takes."""
    bundle_max_bytes: int = 1024 * 1024
    """A bundle leaves once it holds this much: enough to amortise its cost, little enough to be overtaken."""
    inline_max_bytes: int = 24 * 1024
    """Payloads above this travel as frames of their own, uncopied."""
    busy_poll_s: float = 0.0002
    """While messages follow each other this quickly, as in a conversation, the event loop does not sleep in
    between: that halves round trips, for at most as much CPU time per message. 0 switches it off."""
    reorder_hold_s: float = 0.1
    """After a route change, or with copies on several paths, messages wait this long for earlier ones that
    may still be under way."""
    recovery: bool = True
    """What a link loses is sent again, and what it holds when it dies takes another way. Not with `dp`."""
    recovery_max_s: float = 2.0
    """A message that was put longer ago is not sent a second time."""
    ack_delay_s: float = 0.05
    """What arrives is acknowledged after this long at the latest, by bundles that leave anyway or by an
    acknowledgement of its own. A link that owes one for much longer is in trouble. 0, without `recovery`
    only, switches acknowledgements off."""
    paths_max: int = 4
    """Paths at most for one receiver when a publisher asks for an availability."""

    # Replies
    reply_state: bool = True
    """Whether this peer, on the way of others' requests, remembers who is still to reply. Without that it
    passes replies on by the path in them, and merges nothing."""
    reply_missing_after_s: float = 0.5
    """A site that no path reaches for so long is reported missing: enough for a mesh to find another way."""
    reply_check_s: float = 2.0
    """When nothing came from a next peer for so long, it is asked whether it knows the request; then after
    twice as long, and so on. Repairs what got lost in a queue; waiting itself needs no check."""
    # Addressing
    message_attributes: dict[str, str] = msgspec.field(default_factory=dict)
    """Declared attributes of publications, name to kind (`number`, `text`, `boolean`, `set`). When there are
    any, another name or kind in `attributes=` or `where=` is an error where it is written."""
    site_attributes: dict[str, str] = msgspec.field(default_factory=dict)
    """Declared attributes of sites; the same for `set_attributes` and `to=`."""

    # Guarantees
    topics: tuple[TopicRule, ...] = ()
    """Rules for publishers by topic pattern (`[[config.topics]]`); the first that matches holds."""
    confirm_limit_s: float = 30.0
    """An acknowledged message is sent again for this long at most, until all its receivers confirmed it."""
    unconfirmed_max_bytes: int = 4 * 1024 * 1024
    """Per acknowledged publisher: with more unconfirmed, `put` waits."""
    held_max_bytes: int = 16 * 1024 * 1024
    """Of streams with a guarantee, what waits here for earlier messages; more is refused and sent again."""

    store_max_bytes: int = 1024 * 1024 * 1024
    """Messages in a peer's store; when it is full, `put` of a persistent publisher waits."""
    store_retention_s: float = 7 * 86400.0
    """Messages wait so long for a durable subscription that is away; 0: for ever."""

    # Limits: every table and queue has one
    link_queue_max_bytes: int = 16 * 1024 * 1024
    """Per link. Publishers are asked to pause from an eighth of it on; beyond it bundles are dropped."""
    links_max: int = 256
    """Connections with a completed hello; further ones are refused. An eighth is kept for links that this
    peer dials."""
    links_opening_max: int = 64
    """Connections without one."""
    records_max: int = 40_000
    """Records kept in all, of some kinds per peer."""
    record_body_max_bytes: int = 256 * 1024
    """Largest body of one record: some thousand patterns."""
    patterns_max: int = 4096
    """Patterns one peer may announce."""
    publishers_max: int = 4096
    """Open publishers of one peer."""
    subscriptions_max: int = 4096
    """Open subscriptions of one peer."""
    streams_max: int = 16_384
    """Publishers of other peers whose sequence is followed; the least recently heard is forgotten."""
    questions_rate_max: float = 100.0
    """Questions about topics that one peer may ask per second; further ones are neither answered nor passed
    on."""
    harvests_max: int = 4096
    """Requests that are open at this peer, and as many of other peers that it keeps state for."""
    harvest_max_bytes: int = 64 * 1024 * 1024
    """Replies kept for requests of other peers: own answers until a request is over, merged ones until they
    leave. Beyond it they are passed on unmerged, and answers are not kept for a second asking. As much again
    for replies to requests of this peer; a site whose replies find no room is missing."""
    held_runs_max: int = 256
    """Runs waiting in one stream for earlier ones."""
    cache_max: int = 4096
    """Entries in each of the matching, route and forwarding caches; the oldest goes."""

    def __post_init__(self) -> None:
        for name, choices in (("role", Role), ("variant", Variant)):
            try:
                msgspec.structs.force_setattr(self, name, choices(getattr(self, name)))
            except ValueError:
                raise UsageError(f"{name} = {getattr(self, name)!r}: one of {', '.join(choices)}") from None
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, float | int) and not 0 <= value < float("inf"):
                raise UsageError(f"{name} = {value}: must not be negative, and a finite number")
            if value == 0 and (name in _POSITIVE or name.endswith(("_max", "_max_bytes"))):
                raise UsageError(f"{name} = 0: must be positive")
        check_model("message_attributes", self.message_attributes)
        check_model("site_attributes", self.site_attributes)
        if not 0 < self.ewma_weight <= 1:
            raise UsageError(f"ewma_weight = {self.ewma_weight}: must be above 0 and at most 1")
        if self.down_after_s <= self.suspect_after_s:
            raise UsageError(
                f"down_after_s = {self.down_after_s}: must be larger than "
                f"suspect_after_s = {self.suspect_after_s}"
            )
        if self.recovery and not self.ack_delay_s:
            raise UsageError("ack_delay_s = 0: must be positive, or set recovery to false")
        if self.record_lifetime_s <= self.record_refresh_s:
            raise UsageError(
                f"record_lifetime_s = {self.record_lifetime_s}: must be larger than "
                f"record_refresh_s = {self.record_refresh_s}"
            )
        if not 0 < self.bundle_max_bytes <= self.payload_max_bytes:
            raise UsageError(
                f"bundle_max_bytes = {self.bundle_max_bytes}: must be positive and at most "
                f"payload_max_bytes = {self.payload_max_bytes}"
            )

    def replace(self, **changes: object) -> "Config":
        """A copy with other values, checked again; an unknown name is a UsageError."""
        unknown = sorted(set(changes) - set(self.__struct_fields__))
        if unknown:
            raise UsageError(f"unknown setting {unknown[0]!r}: one of {', '.join(self.__struct_fields__)}")
        return msgspec.structs.replace(self, **changes)

    @classmethod
    def local(cls, **changes: object) -> "Config":
        """For peers on one machine: quick to notice, quick to give up."""
        return cls(suspect_after_s=0.4, down_after_s=0.8).replace(**changes)

    @classmethod
    def lan(cls, **changes: object) -> "Config":
        """For peers in one building."""
        return cls(suspect_after_s=0.5, down_after_s=0.9).replace(**changes)

    @classmethod
    def wan(cls, **changes: object) -> "Config":
        """For peers on several continents: the defaults."""
        return cls().replace(**changes)

    @classmethod
    def harmony(cls, **changes: object) -> "Config":
        """As in Harmony's evaluation: probe 5 s, spread 10 s, path search 30 s (section 3), no recovery."""
        return cls(
            probe_interval_s=5.0,
            probe_fast_interval_s=5.0,
            suspect_after_s=11.0,
            down_after_s=16.0,
            step_probes=0,
            spread_interval_s=10.0,
            spread_min_interval_s=10.0,
            search_interval_s=30.0,
            recovery=False,
            ack_delay_s=0.0,
        ).replace(**changes)
