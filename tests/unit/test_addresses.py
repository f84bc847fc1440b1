"""Addresses and names: what is accepted, what a mistake is told, and what may come from the wire."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.addresses import ADDRESS_MAX_CHARS, Address, is_dialable, parse_address
from anabranch.overlay.errors import UsageError
from anabranch.overlay.identifiers import PEER_NAME_MAX_CHARS, PeerId, is_peer_name

PIECES = st.sampled_from(
    ["tcp", "ipc", "udp", "://", ":", "[", "]", "::1", "host", "1.2.3.4", "*", "0", "7400", "/", " "]
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("tcp://10.0.0.2:7400", Address("tcp", "10.0.0.2", 7400)),
        ("tcp://tower.example:1", Address("tcp", "tower.example", 1)),
        ("tcp://[::1]:65535", Address("tcp", "::1", 65535)),
        ("tcp://*:7400", Address("tcp", "*", 7400)),
        ("tcp://127.0.0.1:*", Address("tcp", "127.0.0.1", 0)),
        ("tcp://127.0.0.1:0", Address("tcp", "127.0.0.1", 0)),
        ("ipc:///run/tower", Address("ipc", "/run/tower", 0)),
    ],
)
def test_every_form_is_understood(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "tcp://HOST:PORT"),
        ("10.0.0.2:7400", "tcp://HOST:PORT"),
        ("udp://10.0.0.2:7400", "tcp://HOST:PORT"),
        ("tcp://", "tcp://HOST:PORT"),
        ("ipc://", "ipc://PATH"),
        ("tcp://tower", "no port"),
        ("tcp://:7400", "no port"),
        ("tcp://::1:7400", "brackets"),
        ("tcp://[::1:7400", "brackets"),
        ("tcp://tower:seven", "'seven'"),
        ("tcp://tower:65536", "'65536'"),
        ("tcp://tower:-1", "'-1'"),
        ("tcp://tower:٣", "'٣'"),
        ("tcp://tower:", "''"),
        ("tcp://" + "x" * ADDRESS_MAX_CHARS + ":1", str(ADDRESS_MAX_CHARS)),
    ],
)
def test_a_mistake_is_named_with_its_fix(text: str, names: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_address(text)
    assert names in str(caught.value)
    assert not is_dialable(text)


@pytest.mark.parametrize("text", ["tcp://[]:7400", "tcp://]tower[:7400", "tcp://[[::1]]:7400"])
def test_brackets_hold_a_host(text: str) -> None:
    assert not is_dialable(text)


@given(st.lists(PIECES, max_size=8).map("".join) | st.text(max_size=40))
def test_whatever_is_accepted_reads_the_same_when_written_out(text: str) -> None:
    try:
        address = parse_address(text)
    except UsageError:
        assert not is_dialable(text)
        return
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text", ["tcp://0.0.0.0:7400", "tcp://[::]:7400", "tcp://*:7400", "tcp://tower:0", "tcp://tower:*"]
)
def test_nobody_can_dial_every_interface_or_any_port(text: str) -> None:
    assert not is_dialable(text)


def test_a_listening_address_gets_the_host_that_others_see() -> None:
    listening = parse_address("tcp://0.0.0.0:7400")
    assert listening.is_wildcard
    seen = listening.with_host("10.0.0.2")
    assert str(seen) == "tcp://10.0.0.2:7400"
    assert is_dialable(str(seen))
    assert str(listening.with_host("fe80::1")) == "tcp://[fe80::1]:7400"


def test_ipc_is_dialable() -> None:
    assert is_dialable("ipc:///run/tower")


@pytest.mark.parametrize("text", ["a", "tower-7", "7.north_east", "x" * PEER_NAME_MAX_CHARS])
def test_peer_names_that_work(text: str) -> None:
    assert PeerId.parse(text) == text


@pytest.mark.parametrize("text", ["", "-a", ".a", "a b", "a/b", "ä", "a\n", "x" * (PEER_NAME_MAX_CHARS + 1)])
def test_peer_names_that_do_not_are_named(text: str) -> None:
    assert not is_peer_name(text)
    with pytest.raises(UsageError) as caught:
        PeerId.parse(text)
    assert repr(text) in str(caught.value)
