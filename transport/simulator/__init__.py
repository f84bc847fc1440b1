"""The mesh in virtual time, repeatable by its seed."""

from anabranch.transport.simulator.conditions import Conditions
from anabranch.transport.simulator.flows import Flow
from anabranch.transport.simulator.ledger import (
    BrokenPromiseError,
    Delivery,
    Ledger,
    Missing,
    Published,
    Received,
    SimSubscription,
)
from anabranch.transport.simulator.metering import Carried
from anabranch.transport.simulator.peers import SimPeer
from anabranch.transport.simulator.simulator import Simulator
from anabranch.transport.simulator.starting import EPOCH_BASE_US

__all__ = [
    "EPOCH_BASE_US",
    "BrokenPromiseError",
    "Carried",
    "Conditions",
    "Delivery",
    "Flow",
    "Ledger",
    "Missing",
    "Published",
    "Received",
    "SimPeer",
    "SimSubscription",
    "Simulator",
]
