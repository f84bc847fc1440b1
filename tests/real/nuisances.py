"""Programs that bother a mesh: `nuisances.py KIND ADDRESS IDENTITIES [IDENTITY]`; they say `ready`."""

import asyncio
import contextlib
import os
import socket
import sys
import time
from itertools import count
from pathlib import Path

import zmq
from cryptography.hazmat.primitives.serialization import Encoding
from support_identities import DOMAIN
from test_topics_hostile import HOSTILE, lie

from anabranch import Config, Peer, UsageError
from anabranch.overlay.actions import SendBundle
from anabranch.overlay.bundles import OutBundle
from anabranch.overlay.codec import encode_control, encode_runs, hello_part
from anabranch.overlay.counters import Counters
from anabranch.overlay.headers import Hello, Kind, Run
from anabranch.overlay.trees import encode_tree
from anabranch.security.credentials import CertificateSigner
from anabranch.security.files import load_identity
from anabranch.security.pairing import Pairing
from anabranch.security.synopses import RESTRICTED_MARK
from anabranch.transport.locks import Lock
from anabranch.transport.loops import run
from anabranch.transport.topics import calls
from anabranch.transport.topics.policy import Tdn

PAUSE_S = 0.05
NEVER_GRANTED = f"air/{RESTRICTED_MARK}" + "0" * 32


def knock(address: str, _: Path, identity: str = "") -> None:
    """Dials without an end, with an identity or with nonsense, and keeps connections that say nothing."""
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    lock, context = Lock(DOMAIN, Counters(), 64, 3.0), zmq.Context()
    kept: list[socket.socket | zmq.SyncSocket] = []
    print("ready", flush=True)
    while True:
        raw = socket.create_connection((host, int(port)))
        raw.sendall(b"GET / HTTP/1.1")
        dealer = context.socket(zmq.DEALER)
        dealer.linger = 0
        binding = lock.guard_dialling(dealer)
        dealer.connect(address)
        dealer.send(encode_control(Kind.HELLO, _hello(identity, binding)))
        kept += [raw, dealer]
        for each in kept[:-40]:
            each.close()
        del kept[:-40]
        time.sleep(PAUSE_S)


def _hello(identity: str, binding: bytes) -> Hello:
    """Signed for this connection by the holder of an identity, whatever that is worth."""
    if not identity:
        return Hello("rogue", 1, "peer", 7, b"nonsense", b"proof")
    files = load_identity(Path(identity))
    name, der = files.holder.name, files.holder.certificate.public_bytes(Encoding.DER)
    signer = CertificateSigner(der, files.key, time.time, Pairing(name, os.urandom(32), 1))
    hello = Hello(name, time.time_ns() // 1000, "peer", 7, der)
    hello.proof = signer.sign(hello_part(hello, binding, True))
    return hello


def beyond_its_grant(address: str, identities: Path) -> None:
    """A member that publishes to a restricted topic, past its own checks."""
    run(_posting(address, identities, is_forged=False))


def forging_relay(address: str, identities: Path) -> None:
    """A member that passes on what another never sent."""
    run(_posting(address, identities, is_forged=True))


async def _posting(address: str, identities: Path, *, is_forged: bool) -> None:
    async with Peer("rogue", join=address, identity=identities / "rogue") as rogue:
        await rogue.wait_for_peers("echo", timeout=10)
        shell = rogue._running()
        posting = shell.node._parts.discovery._posting
        print("ready", flush=True)
        for number in count():
            body = [encode_runs([Run(NEVER_GRANTED, 1, number, [b"not allowed"])])]
            for action in posting.post(posting.route(("echo",)), body, 0, 1, time.monotonic(), 0):
                assert isinstance(action, SendBundle)
                if is_forged:
                    _forge(action.bundle)
                shell.wiring.sending.send_bundle(action.link, action.bundle)
            shell.wiring.sending.finish_turn()
            await asyncio.sleep(PAUSE_S)


def _forge(bundle: OutBundle) -> None:
    """In the name of another member."""
    ((_, bundle.tail),) = encode_tree({"echo": (True, {})}, "ping", 1, 1, ["ping", "rogue"], 1)


def lying_node(address: str, identities: Path) -> None:
    """A discovery node that answers nonsense, and a member that asks it all the time."""

    async def bother() -> None:
        async with _with_node(address, identities) as (node, asker):
            lie(node, calls.FIND, b"\xdd\xff\xff\xff\xff")
            print("ready", flush=True)
            while True:
                await asker.discover("air", tdns=["tdn"], within=PAUSE_S)

    run(bother())


def hostile_query(address: str, identities: Path) -> None:
    """A member that keeps a discovery node busy with searches that would not end."""

    async def bother() -> None:
        async with _with_node(address, identities) as (node, asker):
            for number in range(20):
                await node.create_topic(
                    f"air/{number}", text="a" * 4000 + "!", xml="<r>" + "<a/>" * 3000 + "</r>"
                )
            print("ready", flush=True)
            while True:
                for text, by in HOSTILE:
                    with contextlib.suppress(UsageError):
                        await asker.discover(text, by=by, tdns=["tdn"], within=4)

    run(bother())


@contextlib.asynccontextmanager
async def _with_node(address: str, identities: Path):  # type: ignore[no-untyped-def]
    config = Config(questions_rate_max=1000.0)
    tdn = Tdn(store=identities / f"store-{time.time_ns()}")
    async with (
        Peer("tdn", join=address, identity=identities / "tdn", tdn=tdn, config=config) as node,
        Peer("rogue", join=address, identity=identities / "rogue", config=config) as asker,
    ):
        await asker.wait_for_peers("tdn", timeout=10)
        yield node, asker


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
