"""Links that are quick one way and slow the other: each direction takes its own best path."""

import pytest

from anabranch.overlay.config import Config
from anabranch.transport.simulator import Conditions, Simulator

FIXED = Config(neighbours_target=0)


@pytest.mark.parametrize("offsets", [(0, 0, 0, 0, 0), (3, 86_400, 0.5, 12, 7)], ids=["agree", "differ"])
def test_messages_take_the_quick_direction_of_a_link_and_avoid_the_slow_one(
    offsets: tuple[float, ...],
) -> None:
    sim = Simulator(seed=1, default=Conditions(delay_s=0.02))
    names = ["a", "b", "c", "d", "e"]
    for number, (name, offset) in enumerate(zip(names, offsets, strict=True)):
        sim.add_peer(name, config=FIXED, seeds=names[:number], clock_offset_s=offset)
    sim.connect("a", "b", Conditions(delay_s=0.005), Conditions(delay_s=0.195))
    at_b, at_a = sim.subscribe("b", "to/b"), sim.subscribe("a", "to/a")
    sim.run_for(12.0)
    sim.flow("a", "to/b", rate=20, stop=sim.now + 5)
    sim.flow("b", "to/a", rate=20, stop=sim.now + 5)
    sim.run_for(6.0)
    assert {message.path for message in at_b.messages} == {("a", "b")}
    assert all(len(message.path) == 3 for message in at_a.messages)
    ages = [message.age_s for message in at_b.messages[20:]]
    assert max(ages) < 0.02, "the age counts the direction that a message took"
