"""The scenario that `anabranch sim` runs without a file; `examples/scenarios/five-peers.toml` is the same."""

from anabranch.tools.scenarios.reading import parse_scenario
from anabranch.tools.scenarios.schema import Scenario

FIVE_PEERS = """\
# Five peers in a full mesh, as in Harmony's evaluation: three publishers, six subscriptions, a deadline of
# 50 ms. One link is degraded, one fails, a peer crashes, the mesh falls in two, another peer stands still.
name = "five peers"
about = "what a failing link costs with direct links only (dp) and with the best path (bp)"

[run]
duration_s = 60
warmup_s = 3
variants = ["dp", "bp"]

[[peers]]
name = "p"
count = 5

[[links]]
between = ["p1", "p2"]
delay_ms = 20

[[links]]
between = ["p1", "p3"]
delay_ms = 15

[[links]]
between = ["p1", "p4"]
delay_ms = 30

[[links]]
between = ["p1", "p5"]
delay_ms = 25

[[links]]
between = ["p2", "p3"]
delay_ms = 10

[[links]]
between = ["p2", "p4"]
delay_ms = 18

[[links]]
between = ["p2", "p5"]
delay_ms = 12

[[links]]
between = ["p3", "p4"]
delay_ms = 8

[[links]]
between = ["p3", "p5"]
delay_ms = 35

[[links]]
between = ["p4", "p5"]
delay_ms = 40

[[flows]]
peer = "p2"
topic = "t1"
rate_per_s = 100
deadline_ms = 50

[[flows]]
peer = "p3"
topic = "t2"
rate_per_s = 100
deadline_ms = 50

[[flows]]
peer = "p4"
topic = "t3"
rate_per_s = 100
deadline_ms = 50

[[subscriptions]]
name = "s1"
peer = "p1"
patterns = ["t1", "t2"]

[[subscriptions]]
name = "s3"
peer = "p3"
patterns = ["t3"]

[[subscriptions]]
name = "s4"
peer = "p4"
patterns = ["t2"]

[[subscriptions]]
name = "s5"
peer = "p5"
patterns = ["t1", "t3"]

[[events]]
at_s = 10
do = "degrade"
between = ["p2", "p1"]
delay_ms = 100
for_s = 8

[[events]]
at_s = 20
do = "fail"
between = ["p2", "p5"]
for_s = 8

[[events]]
at_s = 30
do = "crash"
peer = "p3"
for_s = 5

[[events]]
at_s = 40
do = "partition"
groups = [["p1", "p2"], ["p3", "p4", "p5"]]
for_s = 4

[[events]]
at_s = 50
do = "pause"
peer = "p4"
for_s = 3
"""


def five_peers() -> Scenario:
    """The built-in scenario."""
    return parse_scenario(FIVE_PEERS, "the built-in scenario")
