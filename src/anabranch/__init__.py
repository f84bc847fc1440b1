"""Anabranch: publish/subscribe over a mesh of peers that watches its links and routes around trouble.

    async with Peer("tower-7", listen="tcp://127.0.0.1:7400", identity="tower-7") as peer: ...

The public names are loaded when they are first used, so that importing a part of the package (an analysis
job, say) does not load ZeroMQ.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.overlay.actions import Harvested, Missing, Reply
    from anabranch.overlay.asking import Protocol
    from anabranch.overlay.config import Config, TopicRule
    from anabranch.overlay.errors import (
        AnabranchError,
        ClosedError,
        ExpressionError,
        LimitError,
        StoreError,
        UsageError,
    )
    from anabranch.overlay.missing import Missed
    from anabranch.overlay.profiles import Profile
    from anabranch.overlay.qos import Guarantee, Overflow, Variant
    from anabranch.transport.assured import AssuredPublisher
    from anabranch.transport.client import Client
    from anabranch.transport.confirmations import Outcome, Receipt
    from anabranch.transport.durable import DurableMessage, DurableSubscription
    from anabranch.transport.harvest import Harvest
    from anabranch.transport.message import Message
    from anabranch.transport.peer import Peer
    from anabranch.transport.profiles import load_profile
    from anabranch.transport.publisher import Publisher
    from anabranch.transport.subscription import Subscription
    from anabranch.transport.topics.policy import Tdn
    from anabranch.transport.topics.topic import Topic

__version__ = "0.1.0"

_HOMES = {
    "AnabranchError": "anabranch.overlay.errors",
    "AssuredPublisher": "anabranch.transport.assured",
    "Client": "anabranch.transport.client",
    "ClosedError": "anabranch.overlay.errors",
    "ExpressionError": "anabranch.overlay.errors",
    "Config": "anabranch.overlay.config",
    "DurableMessage": "anabranch.transport.durable",
    "DurableSubscription": "anabranch.transport.durable",
    "Guarantee": "anabranch.overlay.qos",
    "LimitError": "anabranch.overlay.errors",
    "Harvest": "anabranch.transport.harvest",
    "Harvested": "anabranch.overlay.actions",
    "Message": "anabranch.transport.message",
    "Missing": "anabranch.overlay.actions",
    "Protocol": "anabranch.overlay.asking",
    "Reply": "anabranch.overlay.actions",
    "Missed": "anabranch.overlay.missing",
    "Outcome": "anabranch.transport.confirmations",
    "Overflow": "anabranch.overlay.qos",
    "Peer": "anabranch.transport.peer",
    "Profile": "anabranch.overlay.profiles",
    "Publisher": "anabranch.transport.publisher",
    "Receipt": "anabranch.transport.confirmations",
    "StoreError": "anabranch.overlay.errors",
    "Subscription": "anabranch.transport.subscription",
    "Tdn": "anabranch.transport.topics.policy",
    "Topic": "anabranch.transport.topics.topic",
    "TopicRule": "anabranch.overlay.config",
    "UsageError": "anabranch.overlay.errors",
    "Variant": "anabranch.overlay.qos",
    "load_profile": "anabranch.transport.profiles",
}

__all__ = [
    "AnabranchError",
    "AssuredPublisher",
    "Client",
    "ClosedError",
    "Config",
    "DurableMessage",
    "DurableSubscription",
    "ExpressionError",
    "Guarantee",
    "Harvest",
    "Harvested",
    "LimitError",
    "Message",
    "Missed",
    "Missing",
    "Outcome",
    "Overflow",
    "Peer",
    "Profile",
    "Protocol",
    "Publisher",
    "Receipt",
    "Reply",
    "StoreError",
    "Subscription",
    "Tdn",
    "Topic",
    "TopicRule",
    "UsageError",
    "Variant",
    "load_profile",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'anabranch' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
