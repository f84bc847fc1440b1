"""The scenario that a replay is: a mesh over a recorded network, flows between all peers, failures on top."""

import random
from collections.abc import Sequence

import msgspec

from anabranch.overlay.errors import UsageError
from anabranch.overlay.qos import Variant
from anabranch.tools.scenarios.checks import check_scenario
from anabranch.tools.scenarios.schema import (
    Crash,
    Event,
    Flow,
    Network,
    Peer,
    Preset,
    RandomFail,
    RandomFaults,
    Recorded,
    Run,
    Scenario,
    Subscription,
)
from anabranch.tools.traces.playback import trace_of

ALL_PAIRS_MAX_PEERS = 50
"""Up to so many peers, nobody subscribes to what itself publishes."""


PLAYED_SLICE_S = 3.75
"""How long a slice is played where nobody says: fifteen probes of each link tell what it is like. A mesh that
has more time for the same slices comes closer to the oracle."""


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a replay."""

    trace: Recorded
    peers: int
    publishers: int | None = None
    rate_per_s: float = 1.0
    size_bytes: int = 64
    deadline_ms: float | None = None
    mesh: str = "full"
    links_per_peer: int = 4
    variants: tuple[str, ...] = ("dp", "bp", "bp+qos", "bp+qos+mp", "adaptive")
    subsets: int = 1
    seed: int = 1
    preset: Preset = "default"
    config: dict[str, object] = {}
    loss: float | None = None
    loss_after_loss: float | None = None
    outage_every_s: float | None = None
    outage_share: float = 0.02
    outage_s: float = 10.0
    crash_share: float = 0.0
    """Of the peers, those that only receive, half way through."""
    warmup_s: float = 10.0
    unsaid_slice_s: float = PLAYED_SLICE_S
    """For recordings that don't say how long their slices are."""


def compose(wishes: Wishes, name: str) -> Scenario:
    """The scenario; UsageError if it cannot work."""
    if not 2 <= wishes.peers <= 5000:
        raise UsageError(f"--peers {wishes.peers}: from 2 to 5,000")
    trace = trace_of(wishes.trace)
    slice_s = wishes.trace.slice_s or trace.slice_s or wishes.unsaid_slice_s
    names = [f"p{number}" for number in range(1, wishes.peers + 1)]
    publishers = names[: wishes.publishers or min(wishes.peers, ALL_PAIRS_MAX_PEERS)]
    faults: list[RandomFaults] = []
    if wishes.outage_every_s is not None:
        faults.append(
            RandomFail(every_s=wishes.outage_every_s, probability=wishes.outage_share, for_s=wishes.outage_s)
        )
    scenario = Scenario(
        name=name,
        run=Run(
            duration_s=wishes.warmup_s + trace.slices * slice_s,
            warmup_s=wishes.warmup_s,
            drain_s=3.0,
            seed=wishes.seed,
            runs=wishes.subsets,
            variants=list(wishes.variants),
        ),
        preset=wishes.preset,
        config=dict(wishes.config),
        network=Network(
            mesh=wishes.mesh,  # type: ignore[arg-type] # checked by the conversion below
            links_per_peer=wishes.links_per_peer,
            loss=wishes.loss,
            loss_after_loss=wishes.loss_after_loss,
        ),
        trace=msgspec.structs.replace(wishes.trace, slice_s=slice_s),
        peers=[Peer(name="p", count=wishes.peers)],
        flows=[
            Flow(
                peer=name,
                topic=f"from/{name}",
                rate_per_s=wishes.rate_per_s,
                size_bytes=wishes.size_bytes,
                deadline_ms=wishes.deadline_ms,
                start_s=wishes.warmup_s + number / len(publishers) / wishes.rate_per_s,
            )
            for number, name in enumerate(publishers)
        ],
        subscriptions=_subscriptions(names, publishers),
        random_faults=faults,
        events=_crashes(wishes, names[len(publishers) :], wishes.warmup_s + trace.slices * slice_s / 2),
    )
    try:
        scenario = msgspec.convert(msgspec.to_builtins(scenario), Scenario)
    except msgspec.ValidationError as error:
        raise UsageError(f"the replay cannot be run: {error}") from None
    check_scenario(scenario)
    return scenario


def can_share(wishes: Wishes, variants: Sequence[str]) -> bool:
    """Whether variants can run on one mesh without helping each other: nothing gets lost, nobody fails."""
    return (
        len(variants) > 1
        and wishes.loss is None
        and wishes.outage_every_s is None
        and not wishes.crash_share
        and wishes.trace.missing == "hold"
        and trace_of(wishes.trace).losses is None
        and set(variants) <= set(Variant)
    )


def _crashes(wishes: Wishes, receivers: list[str], at_s: float) -> list[Event]:
    if not 0 <= wishes.crash_share <= 1:
        raise UsageError(f"--crash-share {wishes.crash_share}: from 0 to 1")
    count = round(wishes.crash_share * wishes.peers)
    if count > len(receivers):
        raise UsageError(
            f"--crash-share {wishes.crash_share}: {count} peers, but only {len(receivers)} do not publish; "
            "see --publishers"
        )
    rng = random.Random(f"{wishes.seed}/crashes")  # noqa: S311 - must be repeatable
    return [Crash(at_s=at_s, peer=name) for name in sorted(rng.sample(receivers, count))]


def _subscriptions(names: list[str], publishers: list[str]) -> list[Subscription]:
    if len(names) > ALL_PAIRS_MAX_PEERS:
        return [Subscription(peer="p*", patterns=["from/*"])]
    wanted = {name: [f"from/{other}" for other in publishers if other != name] for name in names}
    return [Subscription(peer=name, patterns=topics) for name, topics in wanted.items() if topics]
