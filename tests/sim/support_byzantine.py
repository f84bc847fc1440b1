"""A member that relays and cheats: it changes, makes up, mixes, redirects and repeats what passes it."""

import random

import msgspec

from anabranch.overlay.bundles import OutBundle
from anabranch.overlay.codec import decode_runs, decode_tail, encode_runs, encode_tail
from anabranch.overlay.config import Config
from anabranch.overlay.errors import PeerError
from anabranch.overlay.headers import Flag, Run
from anabranch.overlay.replywire import Report, decode_items, encode_items, encode_value
from anabranch.transport.simulator import Conditions, Simulator
from anabranch.transport.simulator.wires import Wire

KEPT = 40
DELAY_S = 3.0
CHEATS = (
    "flip", "swap bodies", "mix seals", "no seal", "own seal", "flags", "deadline", "epoch",
    "origin", "redirect", "renumber", "repeat", "cut", "replies", "drop",
)  # fmt: skip
LINKS = {"m": "", "n": "m", "a": "mn", "b": "mn", "x": "mn", "y": "m"}


def mesh(seed: int) -> Simulator:
    """a and b on one side, x and y on the other; m and n between them, and n is slower."""
    sim = Simulator(seed, secured=True)
    for name, others in LINKS.items():
        for other in others:
            delay_s = 0.02 if "n" in name + other else 0.005
            sim.connect(name, other, Conditions(delay_s=delay_s, jitter_s=delay_s / 10))
        sim.add_peer(name, seeds=others, config=Config(neighbours_target=0))
    assert sim.run_until_true(sim.is_settled, 10)
    return sim


class Byzantine:
    """Lets one peer of a simulation cheat with a share of the bundles that it sends."""

    def __init__(
        self, sim: Simulator, name: str, seed: int, share: float = 0.3, cheats: tuple[str, ...] = CHEATS
    ) -> None:
        self.sim = sim
        self.name = name
        self.peer = sim.peers[name]
        self.rng = random.Random(f"byzantine/{seed}")
        self.share = share
        self.cheats = cheats
        self.is_on = True
        self.seen: list[OutBundle] = []
        self.done: dict[str, int] = {}
        self.peer.tamper = self._tamper

    def _tamper(self, wire: Wire, bundle: OutBundle) -> list[OutBundle]:
        sent = [bundle]
        if self.is_on and self.rng.random() < self.share:
            cheat = self.rng.choice(self.cheats)
            try:
                sent = getattr(self, "_" + cheat.replace(" ", "_"))(wire, bundle)
            except (PeerError, IndexError, ValueError, msgspec.MsgspecError):
                cheat = "none"
            self.done[cheat] = self.done.get(cheat, 0) + 1
        self.seen.append(bundle)
        del self.seen[:-KEPT]
        return sent

    # Each returns what leaves instead of the bundle, or beside it.

    def _flip(self, wire: Wire, bundle: OutBundle) -> list[OutBundle]:
        body = list(map(bytes, bundle.body))
        which = self.rng.randrange(len(body))
        at = self.rng.randrange(len(body[which]))
        body[which] = (
            body[which][:at] + bytes([body[which][at] ^ 1 << self.rng.randrange(8)]) + body[which][at + 1 :]
        )
        return [_with(bundle, body=body)]

    def _cut(self, wire: Wire, bundle: OutBundle) -> list[OutBundle]:
        body = list(map(bytes, bundle.body))
        body[0] = body[0][: self.rng.randrange(len(body[0]))]
        return [_with(bundle, body=body)]

    def _swap_bodies(self, wire: Wire, bundle: OutBundle) -> list[OutBundle]:
        return [_with(bundle, body=self.rng.choice(self.seen).body)]

    def _mix_seals(self, wire: Wire, bundle: OutBundle) -> list[OutBundle]:
        seal, _ = _parted(self.rng.choice(self.seen))
        _, content = _parted(bundle)
        return [_with(bundle, body=[seal + content, *bundle.body[1:]])]

    def _no_seal(self, wire: Wire, bundle: OutBundle) -> list[OutBundle]:
        _, content = _parted(bundle)
        return [_with(bundle, body=[bytes(4) + content, *bundle.body[1:]])]

    def _forged(self, bundle: OutBundle) -> list[bytes]:
        """Messages that nobody published, in the place of those that were."""
        _, content = _parted(bundle)
        runs = decode_runs([content, *bundle.body[1:]])
        forged = [
            Run(run.topic, run.publisher, run.first_sequence, [b"forged"] * len(run.payloads)) for run in runs
        ]
        return [encode_runs(forged)]

    def _own_seal(self, wire: Wire, bundle: OutBundle) -> list[OutBundle]:
        body = self._forged(bundle)
        receivers = sorted(self.peer.node.reachable())
        sealed = self.peer.node._parts.sealing.seal(body, receivers, bundle.flags, bundle.deadline_us)  # type: ignore[union-attr]
        return [_with(bundle, body=sealed)]

    def _renumber(self, wire: Wire, bundle: OutBundle) -> list[OutBundle]:
        seal, content = _parted(bundle)
        runs = decode_runs([content, *bundle.body[1:]])
        for run in runs:
            run.first_sequence += self.rng.choice((-1, 1, 1000))
        return [_with(bundle, body=[seal + encode_runs(runs)])]

    def _flags(self, wire: Wire, bundle: OutBundle) -> list[OutBundle]:
        flag = self.rng.choice((Flag.REQUEST, Flag.REPLY, Flag.ASSURED, Flag.CONFIRMS, Flag.SELECTED))
        return [_with(bundle, flags=bundle.flags ^ int(flag))]

    def _deadline(self, wire: Wire, bundle: OutBundle) -> list[OutBundle]:
        return [_with(bundle, deadline_us=bundle.deadline_us + 1)]

    def _epoch(self, wire: Wire, bundle: OutBundle) -> list[OutBundle]:
        tail = decode_tail(bundle.tail)
        tail.epoch += self.rng.choice((-1, 1))
        return [_with(bundle, tail=encode_tail(tail))]

    def _origin(self, wire: Wire, bundle: OutBundle) -> list[OutBundle]:
        """The messages of one peer in the name of another."""
        tail = decode_tail(bundle.tail)
        names = [name for name in sorted(self.peer.node.reachable()) if name not in tail.via]
        tail.origin = tail.via[0] = self.rng.choice(names)
        return [_with(bundle, tail=encode_tail(tail))]

    def _redirect(self, wire: Wire, bundle: OutBundle) -> list[OutBundle]:
        """To our neighbour, whomever it was for."""
        tail = decode_tail(bundle.tail)
        tail.deliver, tail.branches, tail.destinations = True, [], []
        return [_with(bundle, tail=encode_tail(tail)), bundle]

    def _repeat(self, wire: Wire, bundle: OutBundle) -> list[OutBundle]:
        return [bundle, *self.rng.sample(self.seen, min(3, len(self.seen)))]

    def _drop(self, wire: Wire, bundle: OutBundle) -> list[OutBundle]:
        return []

    def _delay(self, wire: Wire, bundle: OutBundle) -> list[OutBundle]:
        """It passes the bundle on, much too late."""
        sim, at = self.sim, self.sim.now + DELAY_S
        sim.at(at, lambda: self.peer._put_bundle(wire, bundle, at))
        return []

    def _replies(self, wire: Wire, bundle: OutBundle) -> list[OutBundle]:
        """Reports of our own, rightly sealed, with answers that no site gave."""
        if not bundle.flags & Flag.REPLY:
            raise IndexError
        items = decode_items(_parted(bundle)[1])
        reports = [item for item in items if isinstance(item, Report) and item.entries]
        for report in reports:
            report.entries = [
                (entry[0], entry[1], True, encode_value("forged"), *entry[4:]) for entry in report.entries
            ]
        if not reports:
            raise IndexError
        tail = decode_tail(bundle.tail)
        sealing = self.peer.node._parts.sealing
        assert sealing is not None
        body = sealing.seal(
            [encode_items(items)], [wire.target.name, tail.origin], bundle.flags, bundle.deadline_us
        )
        return [_with(bundle, body=body)]


def _parted(bundle: OutBundle) -> tuple[bytes, bytes]:
    """The seal with its length, and what it is for."""
    head = bytes(bundle.body[0])
    end = 4 + int.from_bytes(head[:4], "big")
    return head[:end], head[end:]


def _with(bundle: OutBundle, **changes: object) -> OutBundle:
    changed = msgspec.structs.replace(bundle, **changes)
    changed.size = sum(map(len, changed.body))
    return changed
