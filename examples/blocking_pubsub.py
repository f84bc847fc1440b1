"""Publish and subscribe from plain threads: no event loop, no `await`.

Run it: `python examples/blocking_pubsub.py`
"""

import threading

from anabranch.blocking import Peer, Subscription


def main() -> None:
    """This thread publishes, another one reads."""
    with (
        Peer("alice", listen="tcp://127.0.0.1:0", open=True) as alice,
        Peer("bob", join=alice.addresses, open=True) as bob,
        bob.subscribe("jobs/*") as jobs,
    ):
        worker = threading.Thread(target=work, args=(jobs,))
        worker.start()
        alice.wait_for_subscribers("jobs/1", timeout=5)
        with alice.publisher("jobs/1") as publisher:
            for job in ("sweep", "polish", None):
                publisher.put(job)
        worker.join()
        print(f"bob got {bob.counters['delivered']} messages")


def work(jobs: Subscription) -> None:
    """Iterate until there is nothing left to do."""
    for job in jobs:
        if job.payload is None:
            return
        print(f"{job.topic}: {job.payload}")


if __name__ == "__main__":
    main()
