"""A secured mesh with a member that cheats: whoever else takes part gets what was published, or nothing."""

import os

import pytest
from support_byzantine import CHEATS, Byzantine, mesh

from anabranch.overlay.asking import Protocol
from anabranch.overlay.config import Config
from anabranch.security import credentials
from anabranch.security.credentials import TAGS_MAX, CertificateVerifier
from anabranch.transport.simulator import Simulator

SEEDS = int(os.environ.get("BYZANTINE_SEEDS", "4"))


def cheat_for_a_while(sim: Simulator, seed: int) -> Byzantine:
    """m cheats while a and b publish, in bulk and urgently."""
    byzantine = Byzantine(sim, "m", seed)
    for number, origin in enumerate("ab"):
        sim.flow(origin, f"t/{origin}", rate=100, stop=sim.now + 5)
        sim.flow(origin, "t/urgent", rate=30, stop=sim.now + 5, deadline_s=0.2 + number)
    sim.run_for(6)
    return byzantine


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_cheating_relay_gets_nothing_believed(seed: int) -> None:
    """The ledger refuses any delivery of what was not published just so, or twice, or out of order."""
    sim = mesh(seed)
    inboxes = {name: sim.subscribe(name, "t/**") for name in "xyb"}
    sim.run_for(1)
    byzantine = cheat_for_a_while(sim, seed)
    assert set(CHEATS) - {"replies"} <= set(byzantine.done)
    assert sim.counters()["dropped.forged"] > 50
    byzantine.is_on = False
    before = {name: inbox.count for name, inbox in inboxes.items()}
    sim.flow("a", "t/a", rate=100, stop=sim.now + 0.995)
    sim.run_for(2)
    for name, inbox in inboxes.items():
        assert inbox.count - before[name] == 100, f"{name}: all is well once it stops"


def test_without_the_check_the_same_relay_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above can fail: the ledger finds what was never published."""
    monkeypatch.setattr(CertificateVerifier, "verify_seal", lambda *_, **__: 1)
    sim = mesh(0)
    for name in "xyb":
        sim.subscribe(name, "t/**")
    sim.run_for(1)
    with pytest.raises(AssertionError):
        cheat_for_a_while(sim, 0)


def test_signed_bundles_for_many_hold_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "TAGS_MAX", 1)
    assert credentials.TAGS_MAX != TAGS_MAX
    sim = mesh(1)
    for name in "xyb":
        sim.subscribe(name, "t/**")
    sim.run_for(1)
    cheat_for_a_while(sim, 1)
    assert sim.counters()["dropped.forged"] > 50


def test_what_is_confirmed_was_really_accepted() -> None:
    """Acknowledged messages past a relay that changes messages and confirmations alike.

    Checked with tags that are not looked at.
    """
    sim = mesh(3)
    inbox = sim.subscribe("x", "t")
    sim.run_for(1)
    byzantine = Byzantine(sim, "m", 3, share=0.5)
    for number in range(200):
        sim.at(sim.now + number * 0.02, lambda: sim.acknowledge("a", "t", b"vital"))
    sim.run_for(20)
    assert byzantine.done["flip"]
    assert sim.counters()["dropped.forged"] > 20
    assert inbox.count == 200


def test_once_forgotten_streams_do_not_begin_anew_with_what_a_relay_kept() -> None:
    """x forgets the stream of a, for its table is full. m then sends again what it kept: not delivered twice.

    With `Sealing.may_begin` always true, the ledger finds the repetition.
    """
    sim = Simulator(7, secured=True)
    for name, others in {"m": "", "a": "m", "b": "m", "x": "m"}.items():
        config = Config(neighbours_target=0).replace(streams_max=4)
        sim.add_peer(name, seeds=others, config=config)
    assert sim.run_until_true(sim.is_settled, 10)
    inbox = sim.subscribe("x", "t/**")
    sim.run_for(1)
    byzantine = Byzantine(sim, "m", 7, share=0.0)
    sim.publish("a", "t/first", b"once")
    sim.run_for(1)
    kept = next(bundle for bundle in byzantine.seen if bundle.flags == 0)
    for number in range(6):
        sim.publish("b", f"t/{number}", b"other")
    sim.run_for(1)
    assert inbox.count == 7
    wire = next(wire for wire in sim.peers["m"].links.values() if wire.target.name == "x")
    sim.peers["m"]._put_bundle(wire, kept, sim.now)
    sim.run_for(1)
    assert inbox.count == 7
    assert sim.peers["x"].node.counters["dropped.replayed"] == 1
    sim.publish("a", "t/first", b"twice")
    sim.run_for(1)
    assert inbox.messages[-1].payload == b"twice", "what it publishes from now on may begin it"


@pytest.mark.parametrize("protocol", [Protocol.CONVERGE, Protocol.STATELESS, Protocol.PUBLISH])
@pytest.mark.parametrize("seed", range(2))
def test_a_reply_is_its_sites_or_none(seed: int, protocol: Protocol) -> None:
    """m gathers replies on their way, and puts others in their place, in bundles that it seals itself.

    Without `Vouching.sift` the publisher takes them.
    """
    sim = mesh(seed)
    for name in "xybn":
        sim.subscribe(name, "q")
    sim.run_for(1)
    byzantine = Byzantine(sim, "m", seed, share=0.6, cheats=("replies", "flip", "drop"))
    harvests = []
    for _ in range(30):
        harvests.append(sim.request("a", "q", protocol=protocol, within_s=4.0, tau_s=2.0))
        sim.run_for(0.3)
    sim.run_for(6)
    if protocol is not Protocol.PUBLISH:
        assert byzantine.done["replies"] > 2
        assert sim.peers["a"].node.counters["dropped.forged"] > 2
    answers = [reply.value for harvest in harvests for reply in harvest.replies]
    assert len(answers) > 20
    assert "forged" not in answers
