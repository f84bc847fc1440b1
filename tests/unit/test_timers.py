"""The timer table, against a plain dictionary."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.timers import Timers

KEYS = st.sampled_from("abcd")
STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "earliest", "cancel", "pop"]), KEYS, st.integers(0, 20).map(float)),
    max_size=80,
)


@given(STEPS)
def test_it_behaves_like_a_table_of_deadlines(steps: list[tuple[str, str, float]]) -> None:
    timers: Timers[str] = Timers()
    model: dict[str, float] = {}
    for step, key, time in steps:
        if step == "set":
            timers.set(key, time)
            model[key] = time
        elif step == "earliest":
            timers.set_earliest(key, time)
            model[key] = min(time, model.get(key, time))
        elif step == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            assert sorted(timers.are_due(time)) == sorted(name for name, due in model.items() if due <= time)
            popped = timers.pop_due(time)
            assert [due for due, _ in popped] == sorted(due for due, _ in popped)
            assert sorted(popped) == sorted((due, name) for name, due in model.items() if due <= time)
            model = {name: due for name, due in model.items() if due > time}
        assert timers.next() == min(model.values(), default=None)


def test_timers_of_the_same_time_fire_in_the_order_they_were_set() -> None:
    timers: Timers[str] = Timers()
    for key in "zay":
        timers.set(key, 1.0)
    assert timers.pop_due(1.0) == [(1.0, "z"), (1.0, "a"), (1.0, "y")]


def test_timers_that_come_and_go_do_not_pile_up() -> None:
    """Connections that open and close arm and disarm a timer each; memory follows those that are armed."""
    timers: Timers[int] = Timers()
    timers.set(-1, 1.0)
    for number in range(20_000):
        timers.set(number, 1000.0 - number / 100)
        timers.cancel(number)
    assert timers.next() == 1.0
    assert len(timers._heap) < 1000
