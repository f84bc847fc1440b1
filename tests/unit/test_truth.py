"""What the simulated network really allowed, by hand-made cases."""

import pytest

from anabranch.tools.scenarios.truth import Truth, reroute_s

AB, BC, AC = ("a", "b"), ("b", "c"), ("a", "c")
MESH = {AB: 0.02, BC: 0.02, AC: 0.01}


def truth_of_a_failing_link() -> Truth:
    truth = Truth(["a", "b", "c"])
    truth.note(0.0, MESH, [])
    truth.note(10.0, {AB: 0.02, BC: 0.02}, [AC])
    truth.note(20.0, MESH, [])
    return truth


def test_the_quickest_path_is_that_of_the_links_that_are_up() -> None:
    truth = truth_of_a_failing_link()
    assert truth.best_s("a", "c", 5.0) == pytest.approx((0.01, 9.99))
    best, valid = truth.best_s("a", "c", 15.0)
    assert best is not None
    assert abs(best - 0.04) < 1e-12
    assert abs(valid - 19.96) < 1e-9
    assert truth.best_s("c", "a", 5.0)[0] is None


def test_a_link_that_fails_under_a_message_is_no_path_for_it() -> None:
    best, _ = truth_of_a_failing_link().best_s("a", "c", 9.995)
    assert best is not None
    assert abs(best - 0.04) < 1e-9


def test_a_link_that_comes_back_during_the_flight_was_not_up_for_all_of_it() -> None:
    best, _ = truth_of_a_failing_link().best_s("a", "c", 19.995)
    assert best is not None
    assert abs(best - 0.04) < 1e-9


def test_a_light_client_is_on_no_path_but_its_own() -> None:
    truth = Truth(["a", "c"])
    truth.note(0.0, {AB: 0.02, BC: 0.02}, [])
    assert truth.best_s("a", "b", 1.0)[0] == pytest.approx(0.02)
    assert truth.best_s("a", "c", 1.0)[0] is None


def test_a_link_that_fails_twice_in_a_row_is_one_outage() -> None:
    truth = Truth("abc")
    truth.note(0.0, MESH, [])
    truth.note(10.0, {}, [AC])
    truth.note(20.0, MESH, [])
    truth.note(20.0, {}, [AC])
    truth.note(30.0, MESH, [])
    assert truth.outages() == [(10.0, 30.0, frozenset([AC]))]


def test_a_flow_is_rerouted_when_a_message_comes_by_another_path() -> None:
    direct, detour = ("a", "c"), ("a", "b", "c")
    paths = [(0.0, direct), (10.7, detour), (25.0, direct)]
    dark = frozenset([AC])
    hit, took = reroute_s(paths, direct, 10.0, 20.0, dark)
    assert hit
    assert took is not None
    assert abs(took - 0.7) < 1e-9
    assert reroute_s(paths, detour, 10.0, 20.0, dark) == (False, None)
    assert reroute_s([(0.0, direct), (25.0, detour)], direct, 10.0, 20.0, dark) == (True, None)
