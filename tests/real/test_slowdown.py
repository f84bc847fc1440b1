"""What those who must not get in cost members who talk: long, and alone on the machine.

`ANABRANCH_SLOWDOWN_SECONDS=10 .venv/bin/pytest -s tests/real/test_slowdown.py`
"""

import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from support_identities import DOMAIN, Identities

from anabranch.tools.bench.children import Children
from anabranch.tools.bench.scenarios import Options

SECONDS = float(os.environ.get("ANABRANCH_SLOWDOWN_SECONDS", "0"))
ROUNDS = 5

NUISANCE = """
import socket, ssl, sys, time
import zmq
from anabranch.overlay.codec import encode_control
from anabranch.overlay.counters import Counters
from anabranch.overlay.headers import Hello, Kind
from anabranch.transport.locks import Lock
host, port = sys.argv[1].removeprefix("tcp://").rsplit(":", 1)
certificate = ssl.PEM_cert_to_DER_cert(open(sys.argv[3]).read()) if len(sys.argv) > 3 else b"nonsense"
lock, context, kept = Lock(sys.argv[2], Counters(), 64, 3.0), zmq.Context(), []
print("ready", flush=True)
while True:
    raw = socket.create_connection((host, int(port)))
    raw.sendall(b"GET / HTTP/1.1")
    dealer = context.socket(zmq.DEALER)
    dealer.linger = 0
    lock.guard_dialling(dealer)
    dealer.connect(sys.argv[1])
    dealer.send(encode_control(Kind.HELLO, Hello("a", 1, "peer", 7, certificate, b"proof")))
    kept += [raw, dealer]
    for each in kept[:-40]:
        each.close()
    del kept[:-40]
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Identities:
    return Identities(tmp_path_factory.mktemp("identities"))


def round_trip_us(options: Options, certificate: str | None) -> float:
    """The median between two members, while a stranger knocks twenty times a second, or nobody."""
    with Children() as children:
        echo = children.start(options.job("anabranch", "echo", name="echo"))
        address = str(echo.expect("ready", 20.0)["address"])
        nuisance = None
        if certificate is not None:
            words = [sys.executable, "-c", NUISANCE, address, DOMAIN, *([certificate] if certificate else [])]
            nuisance = subprocess.Popen(words, stdout=subprocess.PIPE)
            assert nuisance.stdout is not None
            assert nuisance.stdout.readline() == b"ready\n"
        try:
            ping = children.start(options.job("anabranch", "ping", name="ping", address=address))
            result = ping.expect("result", options.limit_s)
            children.finish()
        finally:
            if nuisance is not None:
                nuisance.kill()
                nuisance.communicate()
    return float(result["p50_us"])


@pytest.mark.skipif(not SECONDS, reason="takes minutes, alone on the machine: ANABRANCH_SLOWDOWN_SECONDS=10")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("who", ["a stranger", "a revoked one"])
def test_who_must_not_get_in_slows_members_down_by_a_tenth_at_most(identities: Identities, who: str) -> None:
    for name in ("echo", "ping", "revoked"):
        identities.issue(name, 3)
    identities.revoke("revoked", tell="echo")
    places = str(identities["echo"].parent)
    certificate = "" if who == "a stranger" else str(identities["revoked"] / "certificate.pem")
    options = Options(seconds=SECONDS, identities=places)
    taken: dict[str | None, list[float]] = {None: [], certificate: []}
    for _ in range(ROUNDS):
        for kind, values in taken.items():
            values.append(round_trip_us(options, kind))
    alone, molested = (statistics.median(values) for values in taken.values())
    print(f"{who}: {alone:.1f} us alone, {molested:.1f} us with it: {list(taken.values())}")
    assert molested <= 1.1 * alone
