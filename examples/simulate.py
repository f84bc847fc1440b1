"""A mesh in virtual time: cut a link, see what it costs, and get the same answer every time.

Run it: `python examples/simulate.py --seed 1`
"""

import argparse

from anabranch.testing import Mesh


def main(options: argparse.Namespace) -> None:
    """Three peers, one flow, one failure: a minute of mesh time in a moment."""
    mesh = Mesh("a", "b", "c", seed=options.seed, delay=0.005)
    mesh.link("a", "c", jitter=0.002)
    ticks = mesh.subscribe("c", "ticks")
    mesh.settle()
    print(f"settled after {mesh.now:.2f} s")

    sim = mesh.simulator
    flow = sim.flow("a", "ticks", rate=100, stop=mesh.now + 60)
    mesh.run_for(20)
    mesh.fail("a", "c")
    mesh.run_for(20)
    mesh.restore("a", "c")
    mesh.run_for(22)

    paths = dict.fromkeys(" > ".join(message.path) for message in ticks.messages)
    print(f"published {flow.sent}, delivered {len(ticks)}, lost {flow.sent - len(ticks)}")
    print(f"oldest on arrival: {max(message.age for message in ticks.messages) * 1000:.0f} ms")
    print(f"paths: {', '.join(paths)}")
    print(f"{sim.events} events, fingerprint {sim.trace_hash()[:16]}")


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Simulate a failing link.")
    parser.add_argument("--seed", type=int, default=1, help="another seed is another run")
    return parser.parse_args()


if __name__ == "__main__":
    main(parse_options())
