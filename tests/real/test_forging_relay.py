"""A member on real sockets that relays and forges: who is behind it gets what was published, or nothing."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

sys.path.insert(0, str(Path(__file__).parent))
from support_identities import Identities
from support_peers import take, until

from anabranch import Config, Peer
from anabranch.overlay.bundles import OutBundle, joined, parted
from anabranch.overlay.codec import decode_runs, encode_runs
from anabranch.overlay.identifiers import LinkId
from anabranch.security.credentials import CertificateVerifier
from anabranch.transport.loops import run

HOST = "tcp://127.0.0.1:0"
STATIC = Config(neighbours_target=0)


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Identities:
    return Identities(tmp_path_factory.mktemp("identities"))


def changed(bundle: OutBundle) -> list[OutBundle]:
    """Other payloads under the same seal."""
    seal, content = parted(bundle.body)
    runs = decode_runs(content)
    for each in runs:
        each.payloads = [b"forged"] * len(each.payloads)
    return [msgspec.structs.replace(bundle, body=joined(seal, [encode_runs(runs)]))]


def unsealed(bundle: OutBundle) -> list[OutBundle]:
    """The same as in an open mesh."""
    return [msgspec.structs.replace(bundle, body=list(parted(bundle.body)[1]))]


def twice(bundle: OutBundle) -> list[OutBundle]:
    """The message, and once more."""
    return [bundle, bundle]


@contextmanager
def forging(relay: Peer, forge: Callable[[OutBundle], list[OutBundle]]) -> Iterator[None]:
    """Let a peer do this to whatever it passes on."""
    sending = relay._shell.wiring.sending  # type: ignore[union-attr]
    send = sending.send_bundle

    def sends(link: LinkId, bundle: OutBundle) -> None:
        for each in forge(bundle) if bundle.messages == 0 and not bundle.flags else [bundle]:
            send(link, each)

    sending.send_bundle = sends  # type: ignore[method-assign]
    yield
    sending.send_bundle = send  # type: ignore[method-assign]


async def through(
    identities: Identities, forge: Callable[[OutBundle], list[OutBundle]]
) -> tuple[list[object], dict[str, int], int]:
    """What b gets of three messages by a, of which m forges the second; its counters; refusals in the log."""
    structlog.reset_defaults()
    with capture_logs() as logs:
        async with (
            Peer("m", listen=HOST, identity=identities["m"], config=STATIC) as m,
            Peer("a", join=m.addresses, identity=identities["a"], config=STATIC) as a,
            Peer("b", join=m.addresses, identity=identities["b"], config=STATIC) as b,
            b.subscribe("t") as inbox,
        ):
            await a.wait_for_subscribers("t", timeout=8)
            assert b._node is not None
            counters = b._node.counters
            await a.put("t", b"first")
            received = await take(inbox, 1)
            with forging(m, forge):
                await a.put("t", b"second")
                await until(
                    lambda: any(counters[f"dropped.{why}"] for why in ("forged", "malformed", "duplicate")),
                    "the forgery to be noticed",
                )
            await a.put("t", b"third")
            while received[-1].payload != b"third":
                received += await take(inbox, 1)
            told = [each for each in logs if each["event"] == "refused" and each.get("peer") == "a"]
            return [each.payload for each in received], dict(counters), len(told)


def test_what_a_relay_changed_is_dropped_counted_and_logged(identities: Identities) -> None:
    received, counters, told = run(through(identities, changed))
    assert received == [b"first", b"third"]
    assert counters["dropped.forged"] == 1
    assert told == 1
    assert counters["refused_credentials"] >= 1


def test_without_the_check_it_would_be_believed(
    identities: Identities, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the test above can fail."""
    numbers = iter(range(1, 1000))
    monkeypatch.setattr(CertificateVerifier, "verify_seal", lambda *_, **__: next(numbers))

    async def scenario() -> list[object]:
        async with (
            Peer("m", listen=HOST, identity=identities["m"], config=STATIC) as m,
            Peer("a", join=m.addresses, identity=identities["a"], config=STATIC) as a,
            Peer("b", join=m.addresses, identity=identities["b"], config=STATIC) as b,
            b.subscribe("t") as inbox,
        ):
            await a.wait_for_subscribers("t", timeout=8)
            with forging(m, changed):
                await a.put("t", b"true")
                return [each.payload for each in await take(inbox, 1)]

    assert run(scenario()) == [b"forged"]


def test_what_has_no_seal_is_not_read(identities: Identities) -> None:
    received, counters, _ = run(through(identities, unsealed))
    assert received == [b"first", b"third"]
    assert counters["dropped.malformed"] + counters.get("dropped.forged", 0) == 1


def test_what_a_relay_repeats_is_delivered_once(identities: Identities) -> None:
    received, counters, _ = run(through(identities, twice))
    assert received == [b"first", b"second", b"third"]
    assert counters["dropped.duplicate"] == 1
