"""Several runs of a scenario as one object: shares, percentiles, totals by variant and by pair."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from anabranch.tools.scenarios.measuring import BINS_PER_S, PairCounts
from anabranch.tools.scenarios.schema import Scenario
from anabranch.tools.scenarios.simulating import RunResult

PERCENTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}

Summary = dict[str, Any]


def summarize(scenario: Scenario, results: Sequence[RunResult], wall_s: float) -> Summary:
    """What `anabranch sim --json` prints. Shares are fractions; all but `performance` repeats exactly."""
    variants = {
        variant: _variant(scenario, [result for result in results if result.variant == variant])
        for variant in dict.fromkeys(result.variant for result in results)
    }
    events = sum(result.events for result in results)
    cpu_s = sum(result.cpu_s for result in results)
    return {
        "scenario": scenario.name,
        "seed": min(result.seed for result in results),
        "runs": len({result.seed for result in results}),
        "simulated_s": scenario.end_s,
        "reference": None if scenario.reference is None else msgspec.to_builtins(scenario.reference),
        "variants": variants,
        "performance": {
            "events": events,
            "events_per_s": round(events / cpu_s) if cpu_s else 0,
            "wall_s": round(wall_s, 3),
        },
    }


def _variant(scenario: Scenario, results: list[RunResult]) -> Summary:
    pairs: dict[str, PairCounts] = {}
    for result in results:
        for key, counts in result.measured.pairs.items():
            pairs.setdefault(key, PairCounts()).add(counts)
    total = PairCounts()
    for counts in pairs.values():
        total.add(counts)
    measured = [result.measured for result in results]
    seconds = sum(each.measured_s for each in measured)
    control_bytes_per_s = sum(each.control_bytes for each in measured) / seconds
    recovered = [took for each in measured for fault in each.happenings for took in fault.rerouted_s]
    return {
        **_counts(total),
        "bounds": _bounds(total),
        "bundles": sum(each.bundles for each in measured),
        "data_bytes": sum(each.data_bytes for each in measured),
        "control_bytes_per_s": round(control_bytes_per_s, 1),
        "traffic": _traffic(scenario, results),
        "reroute_s": _times([took for each in measured for took in each.rerouted_s]),
        "recover_s": _times(recovered),
        "pairs": {key: _pair(pairs[key], control_bytes_per_s / len(pairs)) for key in sorted(pairs)},
        "events": [
            {
                "run_seed": result.seed,
                "at_s": fault.at_s,
                "do": fault.do,
                "what": fault.what,
                "again_s": {pair: _rounded(took) for pair, took in sorted(fault.again_s.items())},
            }
            for result in results
            for fault in result.measured.happenings
        ],
        "traces": [
            {"seed": result.seed, "events": result.events, "hash": result.trace_hash}
            for result in results
            if result.trace_hash
        ],
    }


def _pair(counts: PairCounts, control_bytes_per_s: float) -> Summary:
    """Control serves all pairs alike: each gets an even share, as in Harmony, section 3.3."""
    return {
        **_counts(counts),
        "data_bytes": counts.data_bytes,
        "control_bytes_per_s": round(control_bytes_per_s, 1),
    }


def _counts(counts: PairCounts) -> Summary:
    lost = counts.published - counts.delivered
    return {
        "published": counts.published,
        "delivered": counts.delivered,
        "loss": _share(lost, counts.published),
        "late_share": _share(counts.late, counts.delivered),
        "loss_where_path_existed": _share(counts.possible_lost, counts.possible),
        "late_share_where_path_existed": _share(counts.timely_late, counts.timely),
        "latency_ms": _latencies(counts.latencies),
        "mean_latency_ms": _mean_ms(counts.latencies),
        "switches": counts.switches,
    }


def _bounds(counts: PairCounts) -> Summary:
    """Means in ms: as it was, by an oracle that knows the network's future, by direct links that are up."""
    oracle = counts.oracle_s / counts.compared if counts.compared else None
    taken = counts.taken_s / counts.compared if counts.compared else None
    direct = counts.direct_s / counts.direct if counts.direct else None
    return {
        "mean_ms": _ms(taken),
        "oracle_ms": _ms(oracle),
        "direct_ms": _ms(direct),
        "mean_over_oracle": round(taken / oracle, 4) if taken and oracle else None,
        "direct_over_oracle": round(direct / oracle, 4) if direct and oracle else None,
        "direct_down": _share(counts.published - counts.direct, counts.published),
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0


def _mean_ms(bins: dict[int, int]) -> float | None:
    total = sum(bins.values())
    return (
        round(sum(n * count for n, count in bins.items()) * 1000 / BINS_PER_S / total, 3) if total else None
    )


def _traffic(scenario: Scenario, results: list[RunResult]) -> list[Summary]:
    """Bytes on all hops by payload size; payload and header apart where all flows have the same size."""
    in_file = {flow.size_bytes for flow in scenario.flows}
    rows = []
    for size in dict.fromkeys(result.size_bytes for result in results):
        measured = [result.measured for result in results if result.size_bytes == size]
        known = size if size is not None else (next(iter(in_file)) if len(in_file) == 1 else None)
        data = sum(each.data_bytes for each in measured)
        bundles = sum(each.bundles for each in measured)
        payload = known * bundles if known is not None and bundles else None
        rows.append(
            {
                "size_bytes": known,
                "control_bytes": sum(each.control_bytes for each in measured),
                "header_bytes": None if payload is None else data - payload,
                "payload_bytes": payload,
                "measured_s": sum(each.measured_s for each in measured),
            }
        )
    return rows


def _latencies(bins: dict[int, int]) -> Summary:
    """Percentiles by nearest rank; None where nothing was delivered."""
    total = sum(bins.values())
    found: Summary = dict.fromkeys(PERCENTILES)
    below = 0
    waiting = iter(PERCENTILES.items())
    name, share = next(waiting)
    for number in sorted(bins):
        below += bins[number]
        while below >= share * total:
            found[name] = round(number * 1000 / BINS_PER_S, 2)
            name, share = next(waiting, ("", 2.0))
    return found


def _times(times: Iterable[float | None]) -> Summary:
    """Percentiles of times; `never` counts the flows for which it did not happen."""
    everything = list(times)
    took = sorted(each for each in everything if each is not None)
    found: Summary = {"count": len(everything), "never": len(everything) - len(took)}
    for name in ("p50", "p99", "max"):
        rank = max(0, -int(-PERCENTILES[name] * len(took) // 1) - 1)
        found[name] = _rounded(took[rank]) if took else None
    return found


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)
