"""Islands that grew apart meet: the course of one simulation with very many peers, as JSON for its test.

A program of its own, so that its memory goes with it. Peers, peers per island, light clients per peer:
`python tests/sim/thousand_peers.py 200 20 4`; with `1000 25 0` it takes 3 GB and some 40 s.
"""

import json
import random
import sys
import time

from anabranch.overlay.config import Config
from anabranch.overlay.qos import Role
from anabranch.transport.simulator import Conditions, Simulator

FIXED = Config(neighbours_target=0)
CLIENT = Config(role=Role.CLIENT)
SEED = 1


def main(peers: int, island: int, clients: int) -> dict[str, object]:
    """Trees of `island` peers form, each with its light clients, then all are joined into one mesh."""
    rng = random.Random(SEED)
    sim = Simulator(SEED, check=False, keep_messages=False, default=Conditions(delay_s=0.01))
    names = [f"p{number}" for number in range(peers)]
    islands = [names[at : at + island] for at in range(0, peers, island)]
    begin = time.process_time()
    for number, members in enumerate(islands):
        for index, name in enumerate(members):
            before = members[:index] or (rng.choice(islands[:number]) if number else [])
            sim.add_peer(name, config=FIXED, seeds=[rng.choice(before)] if before else [])
    with_clients = []
    for members in islands:
        attached = [f"{name}-c{number}" for name in members for number in range(clients)]
        for client in attached:
            sim.add_peer(client, config=CLIENT, seeds=rng.sample(members, 2))
        with_clients.append(members + attached)
    sim.partition(*with_clients)
    sim.run_for(1.0)
    apart = sim.peer(names[-1]).node.routes.reachable()
    inbox = sim.subscribe(names[-1], "far/away")
    sim.heal()
    healed_at = sim.now
    settled = sim.run_until_true(sim.is_settled, 20.0, every_s=0.5)
    converged_s = sim.now - healed_at
    sim.publish(names[0], "far/away", b"hello")
    sim.run_for(1.0)
    return {
        "nodes": len(sim.peers),
        "reached_apart": len(apart),
        "settled": settled,
        "converged_s": converged_s,
        "delivered": inbox.count,
        "events": sim.events,
        "cpu_s": time.process_time() - begin,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*map(int, sys.argv[1:4]))) + "\n")
