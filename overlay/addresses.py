"""Addresses that peers listen on and dial: `tcp://host:port` (IPv4, `[IPv6]`, name) and `ipc://path`."""

import msgspec

from anabranch.overlay.errors import UsageError

ADDRESS_MAX_CHARS = 256
_FORM = "use tcp://HOST:PORT, tcp://[IPV6]:PORT or ipc://PATH"


class Address(msgspec.Struct, frozen=True):
    """A parsed address; `str()` gives the form that ZeroMQ takes."""

    scheme: str
    host: str
    """Host name or IP without brackets; the path for ipc."""
    port: int
    """0 means: any free port (tcp), unused for ipc."""

    def __str__(self) -> str:
        if self.scheme == "ipc":
            return f"ipc://{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port or '*'}"

    @property
    def is_wildcard(self) -> bool:
        """Whether it names every interface, which nobody can dial."""
        return self.scheme == "tcp" and self.host in ("0.0.0.0", "::", "*")  # noqa: S104 - a comparison, no bind

    def with_host(self, host: str) -> "Address":
        """The same port on another host."""
        return Address(self.scheme, host, self.port)


def parse_address(text: str) -> Address:
    """Parse an address; UsageError names it and shows the form."""
    if len(text) > ADDRESS_MAX_CHARS:
        raise UsageError(f"address of {len(text)} characters: {ADDRESS_MAX_CHARS} at most")
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in ("tcp", "ipc") or not rest:
        raise UsageError(f"address {text!r}: {_FORM}")
    if scheme == "ipc":
        return Address("ipc", rest, 0)
    host, separator, port_text = rest.rpartition(":")
    if not separator or not host:
        raise UsageError(f"address {text!r} has no port: {_FORM}")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if is_bracketed:
        host = host[1:-1]
    if not host or "[" in host or "]" in host or (":" in host) is not is_bracketed:
        raise UsageError(
            f"address {text!r}: an IPv6 host stands in brackets, tcp://[::1]:7400, no other does"
        )
    if port_text == "*":
        return Address("tcp", host, 0)
    if not port_text.isascii() or not port_text.isdigit() or int(port_text) > 65535:
        raise UsageError(f"address {text!r}: port {port_text!r} is not a number from 0 to 65535")
    return Address("tcp", host, int(port_text))


def is_dialable(text: str) -> bool:
    """Whether an address from the wire is well-formed and names one host and port."""
    try:
        address = parse_address(text)
    except UsageError:
        return False
    return address.scheme == "ipc" or (address.port != 0 and not address.is_wildcard)
