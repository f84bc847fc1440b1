"""The form of a scenario file: one struct per table, one field per key, units in the names.

Knows shapes only; `reading.py` fills and checks them. Simulator, testbed and replay read the same file.
"""

from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, field

PEERS_MAX = 10_000
"""More make a run that nobody waits for."""

Seconds = Annotated[float, Meta(ge=0, le=1e7)]
Milliseconds = Annotated[float, Meta(ge=0, le=1e6)]
Share = Annotated[float, Meta(ge=0, le=1)]
Rate = Annotated[float, Meta(gt=0, le=1e12)]
Pair = tuple[str, str]
Direction = Literal["both", "there", "back"]
Preset = Literal["default", "local", "lan", "wan", "harmony"]


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file: an unknown key is an error."""


class ConditionKeys(_Table, frozen=True, kw_only=True):
    """What a link does to frames; a key left out stays as it is."""

    delay_ms: Milliseconds | None = None
    """One way."""
    jitter_ms: Milliseconds | None = None
    """Each frame takes up to this much longer."""
    loss: Share | None = None
    loss_after_loss: Annotated[float, Meta(ge=0, lt=1)] | None = None
    """Share of frames lost after a lost one, when losses come in bursts; `loss` stays the share of all."""
    reorder: Share | None = None
    """Share of frames that are held back, so that later ones overtake them."""
    rate_bytes_s: Rate | None = None
    """What the link carries at most."""


class Run(_Table, frozen=True, kw_only=True):
    """How long, how often, with which variants of routing."""

    duration_s: Annotated[float, Meta(gt=0, le=1e7)] = 60.0
    """Flows end here unless they say otherwise."""
    warmup_s: Seconds = 3.0
    """The mesh forms; measuring and flows that don't say otherwise begin here."""
    drain_s: Seconds = 2.0
    """After the end, for messages that are still under way."""
    seed: int = 1
    """Of the first run; each further run takes the next one."""
    runs: Annotated[int, Meta(ge=1, le=1000)] = 1
    sizes_bytes: list[Annotated[int, Meta(ge=0)]] = field(default_factory=list)
    """When given, everything is run once per size, and that is the payload size of every flow."""
    variants: Annotated[list[str], Meta(min_length=1)] = field(default_factory=lambda: ["bp"])
    """Names of [variants.NAME], or of ways of routing."""


class Network(ConditionKeys, frozen=True, kw_only=True):
    """Conditions of every link that [[links]] does not name, and how peers find each other."""

    mesh: Literal["links", "full", "random", "join"] | None = None
    """Who dials whom: along [[links]], everybody everybody, `links_per_peer` drawn by seed, or only as `join`
    says, with the mesh looking for further neighbours itself. Default: links if there are any, else full."""
    links_per_peer: Annotated[int, Meta(ge=1, le=256)] = 4


class Recorded(_Table, frozen=True, kw_only=True):
    """A recorded network whose delays the links take, slice after slice from `warmup_s` on.

    It says more than [network] and [[links]]; events come on top of it.
    """

    file: str
    """Next to the scenario file, unless the path is absolute."""
    slice_s: Annotated[float, Meta(gt=0, le=1e7)] | None = None
    """How long a slice lasts, if the trace does not say it or time shall pass more quickly."""
    unit: Literal["s", "cs", "ms", "us"] | None = None
    measure: Literal["rtt", "delay"] | None = None
    zero: Literal["missing"] | Milliseconds = "missing"
    """What a value of 0 means: not measured, or a one-way delay."""
    missing: Literal["hold", "down"] = "hold"
    """A pair without a measurement keeps its last delay, or carries nothing."""
    first_slice: Annotated[int, Meta(ge=0)] = 0
    last_slice: Annotated[int, Meta(ge=1)] | None = None
    """Excluded; default: to the end."""
    nodes: list[str] = field(default_factory=list)
    """Of the trace, in the order of the peers; drawn by seed unless given."""


class Peer(_Table, frozen=True, kw_only=True):
    """A peer, or `count` peers called name1, name2, …"""

    name: str
    count: Annotated[int, Meta(ge=1, le=PEERS_MAX)] | None = None
    role: Literal["peer", "client"] = "peer"
    join: list[str] = field(default_factory=list)
    """Peers to dial besides those that the mesh gives it; a client attaches to one of them."""
    clock_offset_s: Seconds = 0.0
    """What its clock shows at time 0: peers' clocks agree on nothing."""
    config: dict[str, Any] = field(default_factory=dict)
    program: list[str] = field(default_factory=list)
    """A command that is run on the peer's host instead of a peer of the testbed; `{name}`, `{listen}` and
    `{join}` in it are filled in. Arguments that are files next to the scenario file are found there."""


class Link(ConditionKeys, frozen=True, kw_only=True):
    """A link between two peers; the first one dials."""

    between: Pair
    back: ConditionKeys | None = None
    """What differs on the way back."""


class Subscription(_Table, frozen=True, kw_only=True):
    """A peer's application wants topics."""

    peer: str
    """A name, or a pattern of names such as `p*`."""
    patterns: Annotated[list[str], Meta(min_length=1)]
    name: str | None = None
    """For the results: `NAME.TOPIC`; the peer's name unless given."""
    start_s: Seconds = 0.0
    stop_s: Seconds | None = None


class Flow(_Table, frozen=True, kw_only=True):
    """A peer's application publishes at a steady rate."""

    peer: str
    """A name, or a pattern of names such as `p*`."""
    topic: str
    rate_per_s: Annotated[float, Meta(gt=0, le=1e6)]
    size_bytes: Annotated[int, Meta(ge=0)] = 64
    deadline_ms: Annotated[float, Meta(gt=0, le=4e6)] | None = None
    """From put to arrival; later ones count as late."""
    start_s: Seconds | None = None
    stop_s: Seconds | None = None


class _Event(_Table, tag_field="do", frozen=True, kw_only=True):
    at_s: Seconds


class Degrade(ConditionKeys, tag_field="do", tag="degrade", frozen=True, kw_only=True):
    """A link gets worse, until it is restored or `for_s` is over."""

    at_s: Seconds
    between: Pair
    direction: Direction = "both"
    for_s: Seconds | None = None


class Fail(_Event, tag="fail", frozen=True, kw_only=True):
    """A link carries nothing, and nobody is told."""

    between: Pair
    direction: Direction = "both"
    for_s: Seconds | None = None


class Restore(_Event, tag="restore", frozen=True, kw_only=True):
    """Whatever was done to a link ends."""

    between: Pair
    direction: Direction = "both"


class SetConditions(ConditionKeys, tag_field="do", tag="set", frozen=True, kw_only=True):
    """A link's conditions change for good; `restore` returns to these."""

    at_s: Seconds
    between: Pair
    direction: Direction = "both"


class Crash(_Event, tag="crash", frozen=True, kw_only=True):
    """A peer's process ends without a farewell."""

    peer: str
    reset: bool = False
    """Its host lives on and closes the connections, as when a process is killed."""
    for_s: Seconds | None = None


class Restart(_Event, tag="restart", frozen=True, kw_only=True):
    """A peer that crashed or left starts again."""

    peer: str


class Pause(_Event, tag="pause", frozen=True, kw_only=True):
    """A peer's process stands still, as after SIGSTOP."""

    peer: str
    for_s: Seconds | None = None


class Resume(_Event, tag="resume", frozen=True, kw_only=True):
    """A paused peer goes on."""

    peer: str


class Leave(_Event, tag="leave", frozen=True, kw_only=True):
    """A peer closes in order, with farewells."""

    peer: str


class Partition(_Event, tag="partition", frozen=True, kw_only=True):
    """Only peers of one group reach each other; those in no group form one of their own."""

    groups: Annotated[list[list[str]], Meta(min_length=1)]
    for_s: Seconds | None = None


class Heal(_Event, tag="heal", frozen=True, kw_only=True):
    """The partition ends."""


LinkEvent = Degrade | Fail | Restore | SetConditions
PeerEvent = Crash | Restart | Pause | Resume | Leave
Event = LinkEvent | PeerEvent | Partition | Heal


class _RandomFaults(_Table, tag_field="do", frozen=True, kw_only=True):
    every_s: Annotated[float, Meta(gt=0, le=1e7)]
    probability: Share
    for_s: Seconds | None = None
    """Default: until the next draw."""
    start_s: Seconds | None = None
    """The first draw; default: after `every_s`."""
    rounds: Annotated[int, Meta(ge=1)] | None = None
    """Number of draws; default: as many as fit."""


class RandomDegrade(ConditionKeys, tag_field="do", tag="degrade", frozen=True, kw_only=True):
    """Every `every_s` each link gets worse with this probability."""

    every_s: Annotated[float, Meta(gt=0, le=1e7)]
    probability: Share
    for_s: Seconds | None = None
    start_s: Seconds | None = None
    rounds: Annotated[int, Meta(ge=1)] | None = None
    between: Pair = ("*", "*")


class RandomFail(_RandomFaults, tag="fail", frozen=True, kw_only=True):
    """Every `every_s` each link fails with this probability."""

    between: Pair = ("*", "*")


class RandomCrash(_RandomFaults, tag="crash", frozen=True, kw_only=True):
    """Every `every_s` each peer crashes with this probability."""

    peer: str = "*"
    reset: bool = False


class RandomPause(_RandomFaults, tag="pause", frozen=True, kw_only=True):
    """Every `every_s` each peer is paused with this probability."""

    peer: str = "*"


RandomFaults = RandomDegrade | RandomFail | RandomCrash | RandomPause


class VariantSettings(_Table, frozen=True, kw_only=True):
    """A named set of settings to compare with others."""

    preset: Preset | None = None
    config: dict[str, Any] = field(default_factory=dict)


class Reference(_Table, frozen=True, kw_only=True):
    """Numbers of somebody else, to show beside the results; each by variant, as the least and the most."""

    source: str
    pair: str | None = None
    """The pair that pictures of a single one show, as in `s5.t1`."""
    late_ms: Milliseconds | None = None
    """Above this, messages of that pair count for `late_by_variant`."""
    loss_by_variant: dict[str, tuple[Share, Share]] = field(default_factory=dict)
    late_by_variant: dict[str, tuple[Share, Share]] = field(default_factory=dict)
    control_by_variant: dict[str, tuple[Rate, Rate]] = field(default_factory=dict)
    """Bytes per second."""
    data_by_variant: dict[str, tuple[Rate, Rate]] = field(default_factory=dict)
    """Data traffic in relation to that of `bp+qos`."""


class Scenario(_Table, frozen=True, kw_only=True):
    """A whole file."""

    name: str = ""
    about: str = ""
    run: Run = field(default_factory=Run)
    preset: Preset = "default"
    """`default` is `wan`."""
    config: dict[str, Any] = field(default_factory=dict)
    variants: dict[str, VariantSettings] = field(default_factory=dict)
    network: Network = field(default_factory=Network)
    trace: Recorded | None = None
    peers: Annotated[list[Peer], Meta(min_length=1)]
    links: list[Link] = field(default_factory=list)
    subscriptions: list[Subscription] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    random_faults: list[RandomFaults] = field(default_factory=list)
    reference: Reference | None = None

    @property
    def end_s(self) -> float:
        """When a run is over."""
        return self.run.duration_s + self.run.drain_s


TABLES: dict[str, tuple[type[_Table], ...]] = {
    "run": (Run,),
    "network": (Network,),
    "trace": (Recorded,),
    "variants": (VariantSettings,),
    "peers": (Peer,),
    "links": (Link,),
    "back": (ConditionKeys,),
    "subscriptions": (Subscription,),
    "flows": (Flow,),
    "events": get_args(Event),
    "random_faults": get_args(RandomFaults),
    "reference": (Reference,),
}
"""The structs of each table."""
