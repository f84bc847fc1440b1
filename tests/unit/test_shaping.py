"""What a direction of an emulated link does to packets, and what netem is told for the same."""

import itertools
import random

import pytest

from anabranch.overlay.errors import UsageError
from anabranch.tools.testbed.backends import BackendKind, Emulation, make_backend
from anabranch.tools.testbed.netem_process import qdisc_words
from anabranch.tools.testbed.shaping import BUFFER_MAX_BYTES, Channel
from anabranch.tools.testbed.validity import judge
from anabranch.tools.testbed.wan import address_of
from anabranch.transport.simulator import Conditions


def fates(conditions: Conditions, count: int = 20_000, seed: int = 1) -> list[bool]:
    """Of so many packets, which were lost."""
    channel, rng = Channel(conditions), random.Random(seed)
    return [channel.due(100, number * 0.01, rng) is None for number in range(count)]


def test_a_packet_is_due_after_the_delay_and_none_overtakes_another() -> None:
    channel, rng = Channel(Conditions(delay_s=0.1)), random.Random(1)
    assert channel.due(100, 1.0, rng) == pytest.approx(1.1)
    channel.set(Conditions(delay_s=0.01))
    assert channel.due(100, 1.01, rng) == pytest.approx(1.1)
    assert channel.due(100, 2.0, rng) == pytest.approx(2.01)


def test_jitter_stays_within_its_bounds_and_keeps_order() -> None:
    channel, rng = Channel(Conditions(delay_s=0.05, jitter_s=0.02)), random.Random(1)
    dues = [channel.due(100, number * 0.001, rng) or 0.0 for number in range(500)]
    assert dues == sorted(dues)
    assert all(0.05 <= due - number * 0.001 <= 0.0701 for number, due in enumerate(dues))


def test_a_rate_makes_packets_wait_and_a_full_buffer_loses_them() -> None:
    channel, rng = Channel(Conditions(delay_s=0.0, rate_bytes_s=100_000)), random.Random(1)
    dues = [channel.due(1000, 0.0, rng) for _ in range(400)]
    assert dues[:3] == pytest.approx([0.01, 0.02, 0.03])
    carried = sum(due is not None for due in dues)
    assert carried == BUFFER_MAX_BYTES // 1000
    assert channel.lost == 400 - carried


def test_a_black_hole_takes_everything() -> None:
    assert all(fates(Conditions(blackhole=True), 50))


@pytest.mark.parametrize("again", [None, 0.8])
def test_losses_have_their_share_and_come_in_bursts_of_their_length(again: float | None) -> None:
    lost = fates(Conditions(loss=0.03, loss_after_loss=again), 200_000)
    assert sum(lost) / len(lost) == pytest.approx(0.03, rel=0.1)
    after_loss = [now for before, now in itertools.pairwise(lost) if before]
    assert sum(after_loss) / len(after_loss) == pytest.approx(0.03 if again is None else again, abs=0.02)


@pytest.mark.parametrize("value", [-0.1, 1.0, 2.0])
def test_an_impossible_burst_is_refused(value: float) -> None:
    with pytest.raises(UsageError, match="loss_after_loss"):
        Conditions(loss_after_loss=value)


def test_netem_is_told_the_same() -> None:
    assert qdisc_words(Conditions(delay_s=0.02))[-2:] == ["delay", "20.000ms"]
    words = qdisc_words(Conditions(delay_s=0.02, jitter_s=0.004, loss=0.03, loss_after_loss=0.8))
    assert words[3:6] == ["delay", "22.000ms", "2.000ms"]
    assert words[6:] == ["loss", "gemodel", "0.618557%", "20.000000%"]
    assert qdisc_words(Conditions(blackhole=True, loss=0.5))[-2:] == ["loss", "100%"]
    assert qdisc_words(Conditions(rate_bytes_s=1000))[-2:] == ["rate", "8000bit"]


def test_no_two_hosts_have_the_same_address() -> None:
    assert len({address_of(number) for number in range(1, 251)}) == 250
    assert address_of(1) == "10.77.0.2"


def test_an_unknown_backend_is_named(tmp_path: object) -> None:
    with pytest.raises(UsageError, match="--backend tunnels: one of auto, namespaces, netem, proxies"):
        make_backend("tunnels", tmp_path)  # type: ignore[arg-type]


def test_a_run_that_others_disturbed_counts_as_no_measurement() -> None:
    good = Emulation(backend=BackendKind.NAMESPACES, lateness_p99_ms=0.2)
    assert judge(good, 0.1).is_valid
    assert "other programs used 0.50 cores" in judge(good, 0.5).doubts[0]
    assert "late" in judge(Emulation(backend=BackendKind.NAMESPACES, lateness_p99_ms=3.0), 0).doubts[0]
    assert not judge(Emulation(backend=BackendKind.PROXIES), 0).is_valid
