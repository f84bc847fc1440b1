"""Connections between simulated peers: dialling, accepting, closing; the wires that changes must reach."""

from typing import TYPE_CHECKING

from anabranch.overlay.identifiers import LinkId
from anabranch.transport.simulator.conditions import Network
from anabranch.transport.simulator.engine import Engine
from anabranch.transport.simulator.wires import Wire

if TYPE_CHECKING:
    from anabranch.transport.simulator.shell import Shell

DIAL_TIMEOUT_S = 3.0
"""A dial that nobody answers fails after this long; a refused one after one round trip."""


class Connections:
    """Every wire, by its pair of peers. Opening takes one round trip for the peer that dials."""

    def __init__(self, engine: Engine, network: Network) -> None:
        self._engine = engine
        self.network = network
        self.peers: dict[str, Shell] = {}
        self._by_address: dict[str, Shell] = {}
        self._wires: dict[tuple[str, str], dict[int, Wire]] = {}

    def add_peer(self, peer: "Shell") -> None:
        """A peer that can be dialled from now on."""
        self.peers[peer.name] = peer
        self._by_address[peer.address] = peer

    def dial(self, source: "Shell", address: str, now: float) -> None:
        """A peer wants a connection."""
        engine = self._engine
        target = self._by_address.get(address)
        give_up = now + DIAL_TIMEOUT_S
        if target is None:
            engine.at(now + 2 * self.network.default.delay_s, source.dial_failed, address, source.incarnation)
            return
        there = self.network.get(source.name, target.name)
        if there.blackhole:
            engine.at(give_up, source.dial_failed, address, source.incarnation)
            return
        arrives = now + there.travel_s(engine.network_rng)
        engine.at(arrives, self._knock, (source, target, address), (source.incarnation, give_up))

    def close(self, wire: Wire, now: float) -> None:
        """The source closed its end: the target learns it after all that was sent."""
        self._forget(wire)
        arrives = self._signal(wire.source, wire.target, now)
        if arrives is not None:
            self._engine.at(max(arrives, wire.last_arrival), wire.target.link_lost, wire.back)

    def vanish(self, wire: Wire) -> None:
        """The source's end is gone, and it told nobody."""
        self._forget(wire)

    def reset(self, wire: Wire, now: float) -> None:
        """Something arrived at the target's end after that was closed: the source is told so."""
        if wire.resetting:
            return
        arrives = self._signal(wire.target, wire.source, now)
        if arrives is not None:
            wire.resetting = True
            self._engine.at(arrives, wire.source.link_lost, wire)

    def refresh(self, source: str, target: str) -> None:
        """The conditions of one direction changed."""
        for wire in list(self._wires.get((source, target), {}).values()):
            wire.set_conditions(self.network.get(source, target))
            wire.free_at = self._engine.now
            wire.source.pump(self._engine.now, wire)

    def refresh_all(self) -> None:
        """A partition began or ended, or the default changed."""
        for source, target in list(self._wires):
            self.refresh(source, target)

    def is_linked(self, a: str, b: str) -> bool:
        """Whether a connection from a to b stands, as a sees it."""
        return bool(self._wires.get((a, b)))

    def _knock(self, now: float, way: "tuple[Shell, Shell, str]", detail: tuple[int, float]) -> None:
        source, target, address = way
        incarnation, give_up = detail
        back = self.network.get(target.name, source.name)
        if back.blackhole or target.is_gone:
            self._engine.at(give_up, source.dial_failed, address, incarnation)
            return
        answer = now + back.travel_s(self._engine.network_rng)
        if not target.is_listening:
            self._engine.at(answer, source.dial_failed, address, incarnation)
            return
        self._engine.at(answer, self._answered, way, (incarnation, target.incarnation))

    def _answered(self, now: float, way: "tuple[Shell, Shell, str]", detail: tuple[int, int]) -> None:
        source, target, address = way
        incarnation, target_incarnation = detail
        if source.incarnation != incarnation:
            return
        wire = Wire(
            source, source.new_link(), target, self.network.get(source.name, target.name), source.queue_max
        )
        back = Wire(target, LinkId(-1), source, self.network.get(target.name, source.name), target.queue_max)
        wire.back, back.back = back, wire
        back.target_link = wire.source_link
        back.last_arrival = now
        self._register(wire)
        arrives = self._signal(source, target, now)
        if arrives is None:
            wire.is_open = False  # the target never learns of it
        else:
            wire.last_arrival = arrives
            self._engine.at(arrives, target.accept, wire, target_incarnation)
        source.dialled(now, wire, address)

    def accepted(self, wire: Wire) -> None:
        """The target took the connection: its own direction exists from now on."""
        self._register(wire.back)

    def _signal(self, source: "Shell", target: "Shell", now: float) -> float | None:
        """When an opening, closing or reset arrives: the network repeats those until they do."""
        conditions = self.network.get(source.name, target.name)
        return None if conditions.blackhole else now + conditions.travel_s(self._engine.network_rng)

    def _register(self, wire: Wire) -> None:
        wire.set_conditions(self.network.get(wire.source.name, wire.target.name))
        self._wires.setdefault((wire.source.name, wire.target.name), {})[wire.source_link] = wire

    def _forget(self, wire: Wire) -> None:
        key = (wire.source.name, wire.target.name)
        wires = self._wires.get(key)
        if wires is not None and wires.get(wire.source_link) is wire:
            del wires[wire.source_link]
            if not wires:
                del self._wires[key]
