"""Real peers on ZeroMQ sockets of this machine: starts the processes of a mesh, and reads its rows."""

import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from anabranch.tools.bench.children import Children
from anabranch.tools.bench.jobs import BenchError, Job
from anabranch.tools.bench.replies.layout import Plan
from anabranch.tools.bench.replies.peers import MeshJob
from anabranch.tools.bench.replies.tally import Row

START_TIMEOUT_S = 90.0
SYSTEM = "replies"


def mesh_rows(
    plan: Plan,
    scenarios: dict[str, dict[int, int]],
    protocols: Sequence[str],
    load: float,
    runs: int,
    tau_s: float,
    processes: int,
    tell: Callable[[Row], None],
) -> list[Row]:
    """A row for each scenario and protocol; `processes` share the peers that only reply."""
    addresses = [f"tcp://127.0.0.1:{port}" for port in free_ports(len(plan.names))]
    others = list(range(1, len(plan.names)))
    job = MeshJob(
        plan=plan,
        addresses=addresses,
        own=[0],
        scenarios=scenarios,
        protocols=list(protocols),
        load=load,
        runs=runs,
        tau_s=tau_s,
    )
    rows = []
    with Children() as children:
        asker = children.start(_job("ask", job))
        hosts = [
            children.start(_job("host", msgspec.structs.replace(job, own=others[first::processes])))
            for first in range(processes)
        ]
        for each in hosts:
            each.expect("ready", START_TIMEOUT_S)
        asker.expect("ready", START_TIMEOUT_S)
        limit_s = START_TIMEOUT_S + runs * len(protocols) * (tau_s + 10.0)
        for scenario, repliers in scenarios.items():
            for protocol in protocols:
                row = asker.expect("row", limit_s)["row"]
                if (row["scenario"], row["protocol"]) != (scenario, protocol):
                    raise BenchError(f"a row of {row['scenario']} by {row['protocol']} came out of turn")
                row["system"] = "anabranch"
                row["repliers"] = sum(repliers.values())
                row["children"] = plan.children(0)
                rows.append(row)
                tell(row)
        asker.expect("over", START_TIMEOUT_S)
        children.finish()
    return rows


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def processes_for(peers: int) -> int:
    """As many as there are cores to run them, and no more than peers."""
    return max(1, min(peers, os.cpu_count() or 1))


def _job(role: str, job: MeshJob) -> Job:
    more: Any = msgspec.to_builtins(job)
    return Job(system=SYSTEM, role=role, name=role, more=more)


def star_row(system: str, variant: str, repliers: int, runs: int, processes: int) -> Row:
    """One publisher and so many repliers next to it, by a system that is compared with."""
    with Children() as children:
        broker = ""
        if system == "nats":
            serving = children.start(Job(system=system, role="serve"))
            broker = serving.expect("ready", START_TIMEOUT_S)["address"]
        job = Job(
            system=system, role="ask", variant=variant, subscribers=repliers, messages=runs, address=broker
        )
        if system == "nats":
            _answering(children, job, repliers, processes)
            asker = children.start(job)
            asker.expect("ready", START_TIMEOUT_S)
        else:
            asker = children.start(job)
            address = asker.expect("ready", START_TIMEOUT_S)["address"]
            _answering(children, msgspec.structs.replace(job, address=address), repliers, processes)
        result = asker.expect("result", START_TIMEOUT_S + runs)
        children.finish()
    del result["event"]
    return {"system": system, "scenario": f"1x{repliers}", "protocol": variant, "load": 0.0, **result}


def _answering(children: Children, job: Job, repliers: int, processes: int) -> None:
    shares = [len(range(first, repliers, processes)) for first in range(processes)]
    started = [
        children.start(
            msgspec.structs.replace(job, role="answer", name=f"answer-{number}", subscribers=share)
        )
        for number, share in enumerate(shares)
        if share
    ]
    for each in started:
        each.expect("ready", START_TIMEOUT_S)
