"""A random mesh whose peers ask and reply under faults, drawn from a seed, and an oracle for what came."""

import random

from support_faults import Faults

from anabranch.overlay.asking import Protocol, RequestKey
from anabranch.overlay.config import Config
from anabranch.overlay.identifiers import PeerId
from anabranch.overlay.qos import Role, Variant
from anabranch.transport.simulator import DECLINE, LATER, Conditions, SimAsked, SimHarvest, Simulator

BEGIN_S = 4.0
"""Until then the mesh forms."""
FAULTS_S = 8.0
WITHIN_S = 6.0
LOOK_S = 0.05
TOPICS = ("q/a", "q/b")


class Trial:
    """One request, and what the oracle saw meanwhile."""

    def __init__(self, harvest: SimHarvest, key: RequestKey, protocol: Protocol, merge: str) -> None:
        self.harvest = harvest
        self.key = key
        self.protocol = protocol
        self.merge = merge
        self.edges: set[tuple[str, str]] | None = None
        """Links that carried everything whenever somebody looked."""
        self.origin_fell = False


class ReplyMesh(Faults):
    """Peers, clients, faults, requests."""

    reset_share = 0.6

    def __init__(self, seed: int, *, requests: int = 6) -> None:
        self.seed = seed
        rng = random.Random(f"replies/{seed}")
        sim = Simulator(seed, check_every=3, default=Conditions(delay_s=rng.uniform(0.001, 0.02)))
        self.peers = [f"p{number}" for number in range(rng.randint(4, 9))]
        self.clients = [f"c{number}" for number in range(rng.choice((0, 1, 2)))]
        super().__init__(sim, rng, self.peers + self.clients)
        target = rng.choice((0, 2, 3, 4))
        variant = rng.choice((Variant.ADAPTIVE, Variant.ADAPTIVE, Variant.BP_QOS_MP, Variant.BP))
        for number, name in enumerate(self.peers):
            seeds = rng.sample(self.peers[:number], min(number, rng.randint(1, 2)))
            config = Config(neighbours_target=target, variant=variant, reply_state=rng.random() < 0.85)
            sim.add_peer(name, config=config, seeds=seeds, clock_offset_s=rng.choice((0.0, 5e5)))
        for name in self.clients:
            sim.add_peer(name, config=Config(role=Role.CLIENT), seeds=rng.sample(self.peers, 3))
        for a in self.names:
            for b in self.names:
                if a != b and rng.random() < 0.25:
                    sim.set_conditions(a, b, self.bad_conditions())
        for name in self.names:
            for topic in TOPICS:
                for _ in range(rng.choice((0, 1, 1, 3))):
                    sim.subscribe(name, topic)
            sim.respond(name, self.respond)
        self.said: dict[tuple[RequestKey, str, int, int], object] = {}
        self.silent: set[tuple[RequestKey, str]] = set()
        self.trials: list[Trial] = []
        for _ in range(rng.randint(1, 6)):
            sim.at(rng.uniform(BEGIN_S, BEGIN_S + FAULTS_S), self.fault)
        for _ in range(requests):
            sim.at(rng.uniform(BEGIN_S, BEGIN_S + FAULTS_S), self.ask)
        sim.at(BEGIN_S, self.look)

    def bad_conditions(self) -> Conditions:
        """A network nobody would want."""
        rng = self.rng
        return Conditions(
            delay_s=rng.uniform(0.001, 0.06),
            jitter_s=rng.choice((0.0, 0.002, 0.03)),
            loss=rng.choice((0.0, 0.01, 0.1)),
            reorder=rng.choice((0.0, 0.0, 0.05)),
        )

    # The applications

    def respond(self, asked: SimAsked) -> object:
        """At once, a little later, never, or not at all."""
        rng = self.rng
        peer = self.sim.peer(asked.site)
        said = (asked.key, asked.site, asked.subscriber, peer.incarnation)
        assert said not in self.said, "a subscriber was asked twice"
        kind = rng.choice(
            ("now", "now", "now", "soon", "soon", "decline", "never" if rng.random() < 0.3 else "now")
        )
        value: object = [asked.site, asked.subscriber, peer.incarnation]
        if kind == "never":
            self.said[said] = LATER
            self.silent.add((asked.key, asked.site))
            return LATER
        if kind == "decline":
            self.said[said] = DECLINE
            return DECLINE
        self.said[said] = value
        if kind == "now":
            return value

        def later() -> None:
            if peer.is_running and peer.incarnation == said[3]:
                peer.answer(asked, value, self.sim.now)
            else:
                self.silent.add((asked.key, asked.site))

        self.sim.at(self.sim.now + rng.uniform(0.01, 2.0), later)
        return LATER

    def ask(self) -> None:
        """Somebody wants to know."""
        rng = self.rng
        name = rng.choice(self.names)
        if not self.sim.peer(name).is_running:
            return
        protocol = rng.choice(tuple(Protocol) + (Protocol.CONVERGE, Protocol.MERGE) * 3)
        merge = "collect" if protocol is Protocol.MERGE or rng.random() < 0.2 else ""
        harvest = self.sim.request(
            name,
            rng.choice(TOPICS),
            {"seed": self.seed},
            protocol=protocol,
            merge=merge,
            within_s=WITHIN_S,
            tau_s=0.0 if protocol.is_repaired else 3.0,
        )
        key = RequestKey(name, self.sim.peer(name).node.identity.epoch, harvest.number)
        self.trials.append(Trial(harvest, key, protocol, merge))
        self.observe()

    # Faults

    def fault(self) -> None:
        """Something goes wrong, mostly for a while."""
        self.rng.choice((self.crash, self.crash, self.pause, self.partition, self.blackhole, self.leave))()
        self.observe()

    def leave(self) -> None:
        """A peer says farewell, and may come back."""
        name = self.rng.choice(self.names)
        if self.sim.peer(name).is_running:
            self.sim.leave(name)
            self.later(lambda: self.revive(name))

    def blackhole(self) -> None:
        """A direction carries nothing any more."""
        a, b = self.rng.sample(self.names, 2)
        self.sim.set_conditions(a, b, Conditions(blackhole=True))

    # The oracle

    def look(self) -> None:
        """Now and then."""
        self.observe()
        self.sim.at(self.sim.now + LOOK_S, self.look)

    def changed(self) -> None:
        """A fault began or ended."""
        self.observe()

    def observe(self) -> None:
        """Which links carry everything now."""
        open_trials = [trial for trial in self.trials if trial.harvest.result is None]
        if not open_trials:
            return
        sim = self.sim
        edges = set()
        running = [name for name in self.names if sim.peer(name).is_running]
        for a in running:
            node = sim.peer(a).node
            for b in running:
                link = node.links.by_peer.get(PeerId(b))
                if a < b and link is not None and a in sim.peer(b).node.links.by_peer:
                    ways = (sim.network.get(a, b), sim.network.get(b, a))
                    if not any(way.blackhole for way in ways):
                        edges.add((a, b))
        for trial in open_trials:
            trial.edges = edges if trial.edges is None else trial.edges & edges
            if trial.harvest.origin not in running:
                trial.origin_fell = True

    def reached(self, trial: Trial) -> set[str]:
        """Whom some path of lasting links reached for the whole time."""
        found = {trial.harvest.origin}
        pending = [trial.harvest.origin]
        while pending:
            here = pending.pop()
            if here in self.clients and here != trial.harvest.origin:
                continue
            for a, b in trial.edges or ():
                other = b if a == here else a if b == here else ""
                if other and other not in found:
                    found.add(other)
                    pending.append(other)
        return found

    def judge(self, trial: Trial) -> bool:
        """AssertionError when the result is not the truth; whether it was complete."""
        harvest, result = trial.harvest, trial.harvest.result
        what = f"seed {self.seed}: {trial.key} ({trial.protocol}) at {harvest.asked_at}"
        if result is None:
            assert trial.origin_fell, f"{what}: it never ended"
            return False
        assert harvest.over_at - harvest.asked_at <= WITHIN_S + 0.001 or trial.origin_fell, (
            f"{what}: too late"
        )
        assert result.error == "", f"{what}: {result.error}"
        values: list[list[object]] = result.value  # type: ignore[assignment]
        if trial.merge:
            values = [value for _, value in result.value]  # type: ignore[attr-defined]
        keys = [(site, subscriber) for site, subscriber, _ in values]
        assert len(set(keys)) == len(keys), f"{what}: counted twice, {sorted(keys)}"
        assert len(keys) == result.answered, f"{what}: {len(keys)} values, {result.answered} counted"
        by_site: dict[str, list[object]] = {site: [] for site in result.asked}
        for (key, site, _, _), value in self.said.items():
            if key == trial.key and site in by_site:
                by_site[site].append(value)
        said = [value for values_of in by_site.values() for value in values_of]
        assert all(value in said for value in values), f"{what}: a reply that nobody gave"
        missing = {each.site for each in result.missing}
        assert result.complete == (not missing), f"{what}: {result}"
        assert missing <= set(result.asked), f"{what}: {missing}"
        assert len(missing) == result.outstanding, what
        for site in set(result.asked) - missing:
            incarnations = {inc for (key, at, _, inc) in self.said if at == site and key == trial.key}
            if len(incarnations) == 1:
                wanted = [value for value in by_site[site] if value is not DECLINE]
                assert LATER not in wanted, f"{what}: {site} is not missing, and was silent"
                got = [value for value in values if value[0] == site]
                assert len(got) == len(wanted), f"{what}: of {site} {got} instead of {wanted}"
        if trial.protocol.is_repaired and not trial.origin_fell:
            key_silent = {site for key, site in self.silent if key == trial.key}
            wrong = (missing & self.reached(trial)) - key_silent
            assert not wrong, f"{what}: missing {result.missing}, though {sorted(wrong)} could be reached"
        return result.complete


def run_seed(seed: int) -> tuple[int, int]:
    """The whole story of a seed: how many requests ended, how many of them complete."""
    mesh = ReplyMesh(seed)
    sim = mesh.sim
    sim.run_until(BEGIN_S + FAULTS_S + WITHIN_S + 1.0)
    complete = sum(mesh.judge(trial) for trial in mesh.trials)
    sim.run_for(WITHIN_S + 6.0)
    for peer in sim.running():
        kept = len(peer.node._replies.tending)
        assert kept == 0, f"seed {seed}: {peer.name} keeps {kept} requests"
    return len(mesh.trials), complete
