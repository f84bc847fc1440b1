"""Whom to dial when: seeds for ever, others for a while, with a growing pause in between."""

import random

import pytest

from anabranch.overlay.dialling import BACKOFF_FIRST_S, BACKOFF_MAX_S, LEARNED_TRIES_MAX, Dialling


@pytest.fixture
def dialling() -> Dialling:
    return Dialling(random.Random(1), 3)


def due(dialling: Dialling, now: float, *neighbours: str, only_one: bool = False) -> list[str]:
    return dialling.due(now, dict.fromkeys(neighbours), only_one)


def test_a_new_address_is_due_at_once_and_only_once(dialling: Dialling) -> None:
    dialling.add("s", True, 10.0)
    assert dialling.next_timeout() == 10.0
    assert due(dialling, 10.0) == ["s"]
    assert due(dialling, 99.0) == []
    assert dialling.next_timeout() is None
    assert dialling.busy()


def test_failures_make_the_pause_longer_up_to_a_limit_and_seeds_are_never_given_up(
    dialling: Dialling,
) -> None:
    dialling.add("s", True, 0.0)
    now = 0.0
    pauses = []
    for _ in range(30):
        assert due(dialling, now) == ["s"]
        dialling.failed("s", now)
        again = dialling.next_timeout()
        assert again is not None
        assert due(dialling, again - 0.001) == []
        pauses.append(again - now)
        now = again
    assert 0.75 * BACKOFF_FIRST_S <= pauses[0] <= 1.25 * BACKOFF_FIRST_S
    assert all(pause <= 1.25 * BACKOFF_MAX_S for pause in pauses)
    assert min(pauses[-5:]) >= 0.75 * BACKOFF_MAX_S
    assert len({round(pause, 6) for pause in pauses}) == len(pauses), (
        "peers that failed together must not retry together"
    )


def test_a_learned_address_is_given_up_after_some_failures(dialling: Dialling) -> None:
    dialling.add("l", False, 0.0)
    for _ in range(LEARNED_TRIES_MAX):
        assert dialling.knows("l")
        due(dialling, 1e9)
        dialling.failed("l", 0.0)
    assert not dialling.knows("l")


def test_a_completed_hello_starts_the_pauses_anew(dialling: Dialling) -> None:
    dialling.add("s", True, 0.0)
    for _ in range(8):
        due(dialling, 1e9)
        dialling.failed("s", 0.0)
    due(dialling, 1e9)
    dialling.opened("s")
    assert dialling.next_timeout() is None
    dialling.confirmed("s", "peer")
    dialling.failed("s", 0.0)
    again = dialling.next_timeout()
    assert again is not None
    assert again <= 1.25 * BACKOFF_FIRST_S


def test_a_neighbour_needs_no_second_link(dialling: Dialling) -> None:
    dialling.add("s", True, 0.0)
    due(dialling, 0.0)
    dialling.opened("s")
    dialling.confirmed("s", "peer")
    dialling.failed("s", 0.0)
    assert due(dialling, 10.0, "peer") == []
    later = dialling.next_timeout()
    assert later is not None
    assert later > 10.0
    assert due(dialling, later, "other") == ["s"]


def test_a_light_client_tries_one_after_the_other_the_least_tried_first(dialling: Dialling) -> None:
    for address in "abc":
        dialling.add(address, True, 0.0)
    tried = []
    for turn in range(6):
        (address,) = due(dialling, 100.0 * turn, only_one=True)
        assert due(dialling, 100.0 * turn, only_one=True) == []
        tried.append(address)
        dialling.failed(address, 100.0 * turn)
    assert sorted(tried) == ["a", "a", "b", "b", "c", "c"]
    (address,) = due(dialling, 1e6, only_one=True)
    dialling.opened(address)
    assert due(dialling, 1e9, only_one=True) == []


def test_learned_addresses_are_bounded_and_seeds_are_not_refused(dialling: Dialling) -> None:
    for number in range(10):
        dialling.add(f"l{number}", False, 0.0)
    assert len(due(dialling, 0.0)) == 3
    dialling.add("s", True, 0.0)
    assert due(dialling, 0.0) == ["s"]


def test_a_known_address_stays_as_it_is_and_unknown_ones_change_nothing(dialling: Dialling) -> None:
    dialling.add("s", True, 0.0)
    due(dialling, 0.0)
    dialling.add("s", False, 0.0)
    assert due(dialling, 1.0) == []
    for report in (
        dialling.opened,
        dialling.forget,
        lambda a: dialling.failed(a, 0.0),
        lambda a: dialling.confirmed(a, "p"),
    ):
        report("unknown")
    assert not dialling.knows("unknown")


def test_our_own_address_is_forgotten(dialling: Dialling) -> None:
    dialling.add("s", True, 0.0)
    dialling.forget("s")
    assert dialling.next_timeout() is None
    assert due(dialling, 1e9) == []
