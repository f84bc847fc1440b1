"""One measurement each: which processes take part, in which order they start, what is read off them."""

from typing import Any

import msgspec

from anabranch.tools.bench.children import Child, Children
from anabranch.tools.bench.jobs import Job

_READY_TIMEOUT_S = 20.0
_SLACK_S = 60.0

Row = dict[str, Any]


class Options(msgspec.Struct, kw_only=True, frozen=True):
    """What is the same for every measurement of a bench."""

    seconds: float = 3.0
    warmup_s: float = 0.5
    rate: float = 0.0
    identities: str = ""
    """A directory with an identity for each peer of a secured mesh; empty for an open one."""

    @property
    def limit_s(self) -> float:
        """How long a measurement may take before it counts as hung."""
        return self.seconds + self.warmup_s + _SLACK_S

    def job(self, system: str, role: str, **fields: Any) -> Job:
        """A job with these options."""
        job = Job(
            system=system, role=role, seconds=self.seconds, warmup_s=self.warmup_s, rate=self.rate, **fields
        )
        if not self.identities:
            return job
        return msgspec.structs.replace(job, identity=f"{self.identities}/{job.name}")


def throughput(options: Options, system: str, variant: str, size: int) -> Row:
    """One sender, one receiver; counted at the receiver."""
    with Children() as children:
        broker = _broker(options, children, system)
        receiver = children.start(
            options.job(system, "receive", variant=variant, size=size, name="receiver", address=broker)
        )
        address = receiver.expect("ready", _READY_TIMEOUT_S)["address"]
        sender = children.start(
            options.job(system, "send", variant=variant, size=size, name="sender", address=address)
        )
        row = _transfer(options, sender, [receiver])
        children.finish()
    return {"system": system, "size": size, "variant": variant, **row}


def rtt(options: Options, system: str, variant: str, size: int) -> Row:
    """One message at a time to an echoing process and back."""
    with Children() as children:
        broker = _broker(options, children, system)
        echo = children.start(
            options.job(system, "echo", variant=variant, size=size, name="echo", address=broker)
        )
        address = echo.expect("ready", _READY_TIMEOUT_S)["address"]
        ping = children.start(
            options.job(system, "ping", variant=variant, size=size, name="ping", address=address)
        )
        result = ping.expect("result", options.limit_s)
        children.finish()
    keys = ("p50_us", "p99_us", "round_trips")
    return {"system": system, "size": size, "variant": variant, **{key: result[key] for key in keys}}


def relay(options: Options, mode: str, size: int) -> Row:
    """`direct`: sender and receiver are linked; `relay`: each is linked with a third process only."""
    with Children() as children:
        address = ""
        if mode == "relay":
            middle = children.start(options.job("anabranch", "relay", name="relay", star=True))
            address = middle.expect("ready", _READY_TIMEOUT_S)["address"]
        receiver = children.start(
            options.job("anabranch", "receive", size=size, name="receiver", address=address, star=True)
        )
        ready = receiver.expect("ready", _READY_TIMEOUT_S)
        sender = children.start(
            options.job(
                "anabranch", "send", size=size, name="sender", address=address or ready["address"], star=True
            )
        )
        row = _transfer(options, sender, [receiver])
        children.finish()
    return {"system": "anabranch", "mode": mode, "size": size, **row}


def fanout(options: Options, peers: int, size: int) -> Row:
    """One publisher with a link to each of `peers` subscribers: its CPU time per message and link."""
    with Children() as children:
        sender = children.start(
            options.job("anabranch", "send", size=size, name="sender", star=True, subscribers=peers)
        )
        address = sender.expect("ready", _READY_TIMEOUT_S)["address"]
        receivers = [
            children.start(
                options.job(
                    "anabranch", "receive", size=size, name=f"receiver-{number}", address=address, star=True
                )
            )
            for number in range(peers)
        ]
        for receiver in receivers:
            receiver.expect("ready", _READY_TIMEOUT_S)
        row = _transfer(options, sender, receivers, announced=True)
        children.finish()
    cost_us = row["sender_cpu_us_per_message"] / peers
    return {
        "system": "anabranch",
        "peers": peers,
        "size": size,
        "cpu_us_per_message_per_link": cost_us,
        **row,
    }


def memory(options: Options, messages: int, size: int) -> list[Row]:
    """Resident memory of an idle peer, and of two peers while `messages` pass between them."""
    with Children() as children:
        idle = children.start(options.job("anabranch", "idle", name="idle"))
        idle_bytes = idle.expect("result", _READY_TIMEOUT_S)["rss_bytes"]
        children.finish()
    rows: list[Row] = [{"system": "anabranch", "role": "idle", "rss_mb": idle_bytes / 1e6}]
    with Children() as children:
        job = options.job("anabranch", "receive", size=size, name="receiver", messages=messages)
        receiver = children.start(job)
        address = receiver.expect("ready", _READY_TIMEOUT_S)["address"]
        sender = children.start(
            msgspec.structs.replace(job, role="send", name="sender", address=address, subscribers=1)
        )
        sender.expect("ready", _READY_TIMEOUT_S)
        limit_s = options.limit_s + messages / 10_000  # slower than this is a failure, too
        sent = sender.expect("sent", limit_s)
        receiver.tell(expected=sent["sent"])
        received = receiver.expect("result", _SLACK_S)
        children.finish()
    for role, report in (("sender", sent), ("receiver", received)):
        samples = report["memory"]
        rows.append(
            {
                "system": "anabranch",
                "role": role,
                "size": size,
                "messages": report["sent" if role == "sender" else "received"],
                "rss_mb": samples[-1]["rss_bytes"] / 1e6,
                "samples": [
                    {"messages": s["messages"], "rss_mb": round(s["rss_bytes"] / 1e6, 3)} for s in samples
                ],
            }
        )
    return rows


def _broker(options: Options, children: Children, system: str) -> str:
    if system != "nats":
        return ""
    address = children.start(options.job(system, "serve")).expect("ready", _READY_TIMEOUT_S)["address"]
    return str(address)


def _transfer(options: Options, sender: Child, receivers: list[Child], announced: bool = False) -> Row:
    """Wait for the sender to end and the receivers to have drained; what they report together."""
    if not announced:
        sender.expect("ready", _READY_TIMEOUT_S)
    sent = sender.expect("sent", options.limit_s)
    for receiver in receivers:
        receiver.tell(expected=sent["sent"])
    results = [receiver.expect("result", options.limit_s) for receiver in receivers]
    return {
        "messages_per_second": min(result["messages_per_second"] for result in results),
        "sent": sent["sent"],
        "received": min(result["received"] for result in results),
        "lost": sum(sent["sent"] - result["received"] for result in results),
        "sender_cpu_us_per_message": sent["cpu_s"] / sent["measured"] * 1e6 if sent["measured"] else 0.0,
    }
