"""Anabranch: publish/subscribe over a mesh of peers that watches its links and routes around trouble.

    async with Peer("tower-7", listen="tcp://127.0.0.1:7400") as peer: ...

The public names are loaded when they are first used, so that importing a part of the package (an analysis
job, say) does not load ZeroMQ.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.overlay.config import Config
    from anabranch.overlay.errors import AnabranchError, ClosedError, ExpressionError, UsageError
    from anabranch.overlay.qos import Overflow, Variant
    from anabranch.transport.message import Message
    from anabranch.transport.peer import Client, Peer
    from anabranch.transport.publisher import Publisher
    from anabranch.transport.subscription import Subscription

__version__ = "0.1.0"

_HOMES = {
    "AnabranchError": "anabranch.overlay.errors",
    "Client": "anabranch.transport.peer",
    "ClosedError": "anabranch.overlay.errors",
    "ExpressionError": "anabranch.overlay.errors",
    "Config": "anabranch.overlay.config",
    "Message": "anabranch.transport.message",
    "Overflow": "anabranch.overlay.qos",
    "Peer": "anabranch.transport.peer",
    "Publisher": "anabranch.transport.publisher",
    "Subscription": "anabranch.transport.subscription",
    "UsageError": "anabranch.overlay.errors",
    "Variant": "anabranch.overlay.qos",
}

__all__ = [
    "AnabranchError",
    "Client",
    "ClosedError",
    "Config",
    "ExpressionError",
    "Message",
    "Overflow",
    "Peer",
    "Publisher",
    "Subscription",
    "UsageError",
    "Variant",
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
