"""Whether a scenario of the right form can work: names, topics, times, settings. Called once, on reading."""

from collections.abc import Callable, Iterable

from anabranch.overlay.errors import UsageError
from anabranch.overlay.identifiers import PeerId
from anabranch.overlay.patterns import check_pattern, check_topic
from anabranch.tools.scenarios.forms import FORMS
from anabranch.tools.scenarios.layout import Layout
from anabranch.tools.scenarios.schema import (
    PEERS_MAX,
    ConditionKeys,
    Degrade,
    Fail,
    Pair,
    Partition,
    RandomDegrade,
    RandomFail,
    Restore,
    Scenario,
    SetConditions,
)
from anabranch.tools.scenarios.settings import check_setting, variant_settings


def check_scenario(scenario: Scenario) -> None:
    """UsageError names the key, counted from 1, and what is wrong with it."""
    run = scenario.run
    if run.warmup_s >= run.duration_s:
        raise UsageError(
            f"run.warmup_s = {run.warmup_s}: must be below run.duration_s = {run.duration_s}, "
            "or nothing is measured"
        )
    total = sum(peer.count or 1 for peer in scenario.peers)
    if total > PEERS_MAX:
        raise UsageError(f"peers: {total:,} in all, {PEERS_MAX:,} at most")
    layout = _check_peers(scenario)
    _check_settings(scenario, layout)
    _check_links(scenario, layout)
    _check_traffic(scenario, layout)
    _check_events(scenario, layout)


def _check_peers(scenario: Scenario) -> Layout:
    layout = Layout(scenario, scenario.run.seed)
    for name in layout.names:
        PeerId.parse(name)
    roles = {place.name: place.role for place in layout.places}
    for number, peer in enumerate(scenario.peers, 1):
        for other in peer.join:
            if other not in roles:
                raise UsageError(f"peers[{number}].join: {_no_peer(other, layout)}")
            if roles[other] == "client":
                raise UsageError(f"peers[{number}].join: {other!r} is a client, and clients accept no links")
        if peer.role == "client" and not peer.join:
            raise UsageError(f"peers[{number}].join is missing: a client attaches to one of {FORMS['join']}")
    return layout


def _check_settings(scenario: Scenario, layout: Layout) -> None:
    for key, value in scenario.config.items():
        check_setting(key, value, "config")
    for name, settings in scenario.variants.items():
        for key, value in settings.config.items():
            check_setting(key, value, f"variants.{name}.config")
    for number, peer in enumerate(scenario.peers, 1):
        for key, value in peer.config.items():
            check_setting(key, value, f"peers[{number}].config")
    for variant in scenario.run.variants:
        try:
            variant_settings(scenario, variant)
        except UsageError as error:
            raise UsageError(f"run.variants: {error}") from None
    first_of_each = {id(layout.table(name)): name for name in reversed(layout.names)}
    for variant in dict.fromkeys([*scenario.run.variants, *scenario.variants]):
        for name in reversed(first_of_each.values()):
            layout.config(name, variant)


def _check_links(scenario: Scenario, layout: Layout) -> None:
    seen: dict[frozenset[str], int] = {}
    for number, link in enumerate(scenario.links, 1):
        key = f"links[{number}].between"
        for name in link.between:
            if not layout.is_peer(name):
                raise UsageError(f"{key}: {_no_peer(name, layout)}")
        if link.between[0] == link.between[1]:
            raise UsageError(f"{key} = {list(link.between)}: a link joins two different peers")
        first = seen.setdefault(frozenset(link.between), number)
        if first != number:
            raise UsageError(f"{key} = {list(link.between)}: described in links[{first}] already")


def _check_traffic(scenario: Scenario, layout: Layout) -> None:
    end = scenario.run.duration_s
    for number, subscription in enumerate(scenario.subscriptions, 1):
        key = f"subscriptions[{number}]"
        _check_plays(f"{key}.peer", subscription.peer, layout)
        for pattern in subscription.patterns:
            _check_text(f"{key}.patterns", check_pattern, pattern)
        _check_span(key, subscription.start_s, subscription.stop_s, end)
    for number, flow in enumerate(scenario.flows, 1):
        key = f"flows[{number}]"
        _check_plays(f"{key}.peer", flow.peer, layout)
        _check_text(f"{key}.topic", check_topic, flow.topic)
        start = scenario.run.warmup_s if flow.start_s is None else flow.start_s
        _check_span(key, start, flow.stop_s, end)
        limit = min(
            layout.config(name, scenario.run.variants[0]).payload_max_bytes
            for name in layout.peers(flow.peer)
        )
        for size in scenario.run.sizes_bytes:
            if size > limit:
                raise UsageError(f"run.sizes_bytes: {size}: payload_max_bytes = {limit} at most")
        if flow.size_bytes > limit:
            raise UsageError(f"{key}.size_bytes = {flow.size_bytes}: payload_max_bytes = {limit} at most")


def _check_events(scenario: Scenario, layout: Layout) -> None:
    for number, event in enumerate(scenario.events, 1):
        key = f"events[{number}]"
        if event.at_s > scenario.end_s:
            raise UsageError(f"{key}.at_s = {event.at_s}: after the end of the run at {scenario.end_s} s")
        if isinstance(event, Degrade | Fail | Restore | SetConditions):
            _check_between(f"{key}.between", event.between, layout)
        elif isinstance(event, Partition):
            _check_groups(f"{key}.groups", event.groups, layout)
        elif hasattr(event, "peer"):
            _check_known(f"{key}.peer", event.peer, layout)
        if isinstance(event, Degrade | SetConditions):
            _check_worsens(key, event)
    for number, faults in enumerate(scenario.random_faults, 1):
        key = f"random_faults[{number}]"
        if isinstance(faults, RandomDegrade | RandomFail):
            _check_between(f"{key}.between", faults.between, layout)
        else:
            _check_known(f"{key}.peer", faults.peer, layout)
        if isinstance(faults, RandomDegrade):
            _check_worsens(key, faults)


def _check_between(key: str, between: Pair, layout: Layout) -> None:
    for pattern in between:
        _check_known(key, pattern, layout)
    if layout.mesh == "links":
        linked = {frozenset(pair) for pair in layout.links}
        ways = layout.ways(between, "both")
        if not any(frozenset(way) in linked for way in ways):
            raise UsageError(f"{key} = {list(between)}: there is no such link; describe it in [[links]]")
    elif not layout.ways(between, "both"):
        raise UsageError(f"{key} = {list(between)}: there is no such link")


def _check_groups(key: str, groups: list[list[str]], layout: Layout) -> None:
    seen: set[str] = set()
    for pattern in (name for group in groups for name in group):
        _check_known(key, pattern, layout)
        for name in layout.peers(pattern):
            if name in seen:
                raise UsageError(f"{key}: peer {name!r} stands there twice; each peer belongs to one group")
            seen.add(name)


def _check_worsens(key: str, event: ConditionKeys) -> None:
    if all(getattr(event, name) is None for name in ConditionKeys.__struct_fields__):
        raise UsageError(f"{key} changes nothing: give one of {', '.join(ConditionKeys.__struct_fields__)}")


def _check_known(key: str, pattern: str, layout: Layout) -> None:
    if not layout.peers(pattern):
        raise UsageError(f"{key}: {_no_peer(pattern, layout)}")


def _check_plays(key: str, pattern: str, layout: Layout) -> None:
    _check_known(key, pattern, layout)
    for name in layout.peers(pattern):
        if layout.table(name).program:
            raise UsageError(f"{key}: {name!r} runs a program, which publishes and subscribes by itself")


def _check_text(key: str, check: Callable[[str], str], text: str) -> None:
    try:
        check(text)
    except UsageError as error:
        raise UsageError(f"{key}: {error}") from None


def _check_span(key: str, start: float, stop: float | None, end: float) -> None:
    if start >= end:
        raise UsageError(f"{key}.start_s = {start}: must be before the end of the run, duration_s = {end}")
    if stop is not None and stop <= start:
        raise UsageError(f"{key}.stop_s = {stop}: must be after start_s = {start}")


def _no_peer(name: str, layout: Layout) -> str:
    return f"no peer {name!r}: one of {_listed(layout.names)}, or describe it in [[peers]]"


def _listed(names: Iterable[str], most: int = 10) -> str:
    shown = list(names)
    return ", ".join(shown[:most]) + (", ..." if len(shown) > most else "")
