"""The node of a simulated process: its name, its epoch, its address."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch.overlay.config import Config
from anabranch.overlay.identifiers import PeerId
from anabranch.overlay.node import Node
from anabranch.overlay.profiles import Profile
from anabranch.overlay.qos import Role
from anabranch.transport.simulator.engine import Engine

if TYPE_CHECKING:
    from anabranch.transport.simulator.realm import Realm

EPOCH_BASE_US = 1_600_000_000_000_000
"""Epochs look like those of a wall clock, so that nothing depends on their being small."""


def new_node(
    name: str,
    config: Config,
    seeds: Sequence[str],
    incarnation: int,
    engine: Engine,
    recording: bool,
    profile: Profile | None = None,
    realm: "Realm | None" = None,
) -> Node:
    """The node of a process that starts now."""
    epoch = EPOCH_BASE_US + int(engine.now * 1e6) + incarnation
    signer, verifier = (None, None) if realm is None else realm.pair(name, incarnation, config)
    listening = config.role is not Role.CLIENT
    node = Node(
        PeerId.parse(name),
        config,
        epoch=epoch,
        rng=engine.rng(f"node/{name}/{incarnation}"),
        seeds=seeds,
        addresses=(address_of(name),) if listening else (),
        signer=signer,
        verifier=verifier,
    )
    node.recording = recording
    if profile is not None:
        node.use_profile(profile)
    return node


def address_of(name: str) -> str:
    """Where a simulated peer can be dialled."""
    return f"tcp://{name}:1"
