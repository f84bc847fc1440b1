"""Addresses as people give them to a peer, and bound ones as others can use them."""

import ipaddress
import socket
from collections.abc import Sequence

from anabranch.overlay.addresses import Address, parse_address
from anabranch.overlay.errors import UsageError


def texts(value: str | Sequence[str]) -> list[str]:
    """One text or several."""
    return [value] if isinstance(value, str) else list(value)


def dialable(text: str) -> Address:
    """The address, if somebody can dial it; else a UsageError."""
    address = parse_address(text)
    if address.is_wildcard or (address.scheme == "tcp" and address.port == 0):
        raise UsageError(f"address {text!r} cannot be dialled: name one host and its port")
    return address


def advertisable(bound: list[str]) -> list[str]:
    """The bound addresses, wildcards replaced by this host's own address."""
    addresses = []
    for text in bound:
        address = parse_address(text)
        if address.is_wildcard:
            address = address.with_host(_own_host(6 if ":" in address.host else 4))
        addresses.append(str(address))
    return addresses


def _own_host(version: int) -> str:
    """The address this host would use to reach others; looked up without sending anything."""
    family, target = (socket.AF_INET6, "2001:db8::1") if version == 6 else (socket.AF_INET, "192.0.2.1")
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((target, 9))
            return str(ipaddress.ip_address(probe.getsockname()[0]))
        except OSError:
            return "::1" if version == 6 else "127.0.0.1"
