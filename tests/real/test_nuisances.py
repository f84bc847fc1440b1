"""Those who must not get in, or go too far: what they try is counted and logged with its reason.

A hostile query has its test in `test_topics_hostile.py`; `test_slowdown.py` measures what they all cost.
"""

import asyncio
import sys
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

sys.path.insert(0, str(Path(__file__).parent))
from support_identities import Identities
from support_peers import until

from anabranch import Peer
from anabranch.transport.loops import run

NUISANCES = Path(__file__).with_name("nuisances.py")
HOST = "tcp://127.0.0.1:0"
KNOWN = {
    "a stranger": ("knock", "dropped.untrusted", "rogue", "not a certificate"),
    "a revoked peer": ("knock", "dropped.untrusted", "revoked", "was revoked"),
    "an expired peer": ("knock", "dropped.untrusted", "expired", "expired at"),
    "a foreign certificate": ("knock", "dropped.untrusted", "rogue", "not from an authority trusted here"),
    "a grant holder beyond its grant": ("beyond_its_grant", "dropped.denied", "rogue", "publishes to"),
    "a forging relay": ("forging_relay", "dropped.unknown_key", "ping", "brought: its seal does not hold"),
    "a lying node": ("lying_node", "topics_refused", "tdn", "makes no sense"),
}
"""Program, counter, whose name the log shows, and why."""


async def identity_of(who: str, identities: Identities, directory: Path, echo: Peer) -> list[str]:
    """What a program shows of itself; a revoked and an expired peer were members before."""
    if who == "a foreign certificate":
        (directory / "foreign").mkdir()
        return [str(Identities(directory / "foreign")["rogue"])]
    if who == "an expired peer":
        return [str(identities.issue("expired", 0.0001))]
    if who == "a revoked peer":
        async with Peer("revoked", join=echo.addresses, identity=identities["revoked"]) as member:
            await member.wait_for_peers("echo", timeout=8)
        identities.revoke("revoked", tell="echo")
        verifier = echo._running().node._parts.verifier
        await until(verifier.revocations, "the revocation")
        return [str(identities["revoked"])]
    return []


@pytest.mark.parametrize("who", KNOWN)
def test_whoever_bothers_a_member_is_counted_and_logged(who: str, tmp_path: Path) -> None:
    """Checked with a `MeshIdentity.refused` that does nothing: nothing is logged. Without a second look at
    known certificates in `learn`, a revoked peer is not."""
    program, counter, name, why = KNOWN[who]
    structlog.reset_defaults()
    (tmp_path / "ours").mkdir()
    identities = Identities(tmp_path / "ours")
    identities.issue("tdn", is_tdn=True)
    for each in ("rogue", "ping"):
        identities.issue(each)

    async def scene() -> None:
        async with Peer("echo", listen=HOST, identity=identities["echo"]) as echo:
            shown = await identity_of(who, identities, tmp_path, echo)
            words = [str(NUISANCES), program, echo.addresses[0], str(tmp_path / "ours"), *shown]
            process = await asyncio.create_subprocess_exec(
                sys.executable, *words, stdout=asyncio.subprocess.PIPE
            )
            try:
                assert process.stdout is not None
                assert b"ready\n" in await asyncio.wait_for(process.stdout.readuntil(b"ready\n"), 60)
                if who == "a lying node":
                    await echo.discover("air", tdns=["tdn"], within=5)
                else:
                    async with Peer("ping", join=echo.addresses, identity=identities["ping"]):
                        await until(lambda: echo.counters[counter], counter)
                assert echo.counters[counter]
                found = [each for each in logs if each["event"] == "refused" and each["peer"] == name]
                assert any(why in each["why"] for each in found), (found, logs)
                assert {link["peer"] for link in echo.report()["links"]} <= {"ping", "rogue", "tdn"}  # type: ignore[attr-defined]
            finally:
                process.terminate()
                await process.wait()

    with capture_logs() as logs:
        run(scene())
