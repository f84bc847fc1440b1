"""A link that many publishers share gives each its share, however much one of them sends (threat 21)."""

import pytest

from anabranch.overlay.config import Config
from anabranch.transport.simulator import Conditions, Simulator

RATE_BYTES_S = 200_000.0
POLITE = [f"p{number}" for number in range(9)]
PAYLOAD_BYTES = 400


@pytest.mark.parametrize("deadline_s", [0.0, 2.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_flooder_takes_nothing_from_those_who_keep_to_their_share(seed: int, deadline_s: float) -> None:
    """One floods the only link to the subscriber with five times what it carries, nine send 80 % of a share.

    With one queue for all they lose most of what they send.
    """
    sim = Simulator(seed, default=Conditions(delay_s=0.002))
    config = Config(neighbours_target=0).replace(link_queue_max_bytes=400_000)
    sim.add_peer("relay", config=config)
    for name in ("x", "flooder", *POLITE):
        sim.add_peer(name, seeds=["relay"], config=config)
    inbox = sim.subscribe("x", "t/**")
    assert sim.run_until_true(sim.is_settled, 10)
    sim.run_for(1)
    sim.connect("relay", "x", Conditions(delay_s=0.002, rate_bytes_s=RATE_BYTES_S))
    share = RATE_BYTES_S / (len(POLITE) + 1)
    size = PAYLOAD_BYTES + 150
    sim.flow(
        "flooder",
        "t/flood",
        rate=5 * RATE_BYTES_S / size,
        stop=sim.now + 10,
        size=PAYLOAD_BYTES,
        deadline_s=deadline_s,
    )
    for name in POLITE:
        sim.flow(
            name,
            f"t/{name}",
            rate=0.8 * share / size,
            stop=sim.now + 10,
            size=PAYLOAD_BYTES,
            deadline_s=deadline_s,
        )
    sim.run_for(14)
    received = dict.fromkeys(("flooder", *POLITE), 0)
    for message in inbox.messages:
        received[message.origin] += 1
    put = 0.8 * share / size * 10
    for name in POLITE:
        assert received[name] >= 0.97 * put, (name, received)
    assert received["flooder"] >= put, "what they leave is its"
