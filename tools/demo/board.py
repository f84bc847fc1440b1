"""What is known of the demonstration at this moment, from what its peers tell.

Decides when a link counts as up, when a flow has moved away from a bad link and how long that took. Filled by
`mesh.py`, read by `screen.py` and `summary.py`.
"""

import time
from collections import deque
from collections.abc import Callable

import msgspec

from anabranch.tools.demo.messages import (
    Event,
    FlowView,
    LinkSeen,
    LinkView,
    Matched,
    PathSeen,
    Ready,
    Status,
)
from anabranch.tools.demo.scenario import (
    DEGRADED_S,
    FLOWS,
    LINKS,
    PEERS,
    RATE,
    Flow,
    Link,
    Step,
    Trouble,
    find_link,
)

LINES_MAX = 200
"""Lines of the story that are kept."""
HISTORY_MAX = 1000
"""Path changes per flow that are kept."""
ALIVE_SHARE = 0.5
"""A flow delivers if at least this share of its rate arrived in the last second."""

Path = tuple[str, ...]


class LinkRow(msgspec.Struct):
    """One link, seen from both of its ends."""

    link: Link
    set_delay_s: float
    trouble: Trouble | None = None
    states: dict[str, str] = {}
    views: dict[str, LinkView] = {}

    @property
    def state(self) -> str:
        """The worse of what its two ends say; empty until they said something."""
        if not self.states:
            return ""
        ends = [self.states.get(peer, "down") for peer in (self.link.first, self.link.second)]
        return next((state for state in ("down", "suspect") if state in ends), "up")

    def mean(self, field: str) -> float | None:
        """A measured value, averaged over the ends that know it."""
        values = [getattr(view, field) for view in self.views.values()]
        return sum(values) / len(values) if values else None


class FlowRow(msgspec.Struct):
    """One flow, seen from its subscriber."""

    flow: Flow
    view: FlowView | None = None
    path: Path = ()
    home: Path = ()
    """The path it began with."""
    history: list[tuple[float, Path]] = []
    """Paths, each with when its first message arrived."""
    sent: int = 0
    delivering: bool | None = None
    """Whether it was when the publishers were told to stop; None before."""


class Reaction(msgspec.Struct, frozen=True):
    """How long after something happened a flow arrived on another path."""

    flow: Flow
    path: Path
    after_s: float


class Happening(msgspec.Struct):
    """A step that was played, and what the mesh made of it."""

    step: Step
    at: float
    affected: list[Flow]
    noticed_s: float | None = None
    """When an end of a dead link found it bad; when both ends of a restored one had it up again."""
    moved: list[Reaction] = []

    @property
    def reaction_s(self) -> float | None:
        """Until the last affected flow had moved; None if one has not, or none is affected."""
        if not self.affected or len(self.moved) < len(self.affected):
            return None
        return max(reaction.after_s for reaction in self.moved)


class Line(msgspec.Struct, frozen=True):
    """A line of the story."""

    at: float
    text: str
    tone: str
    """`plain`, `bad` or `good`."""


class Board:
    """The state of one run. `on_line` hears each line of the story as it is written."""

    def __init__(self, on_line: Callable[[Line], None] | None = None) -> None:
        self.phase = "starting"
        self.begun_at = time.monotonic()
        self.started_at: float | None = None
        """When the publishers began."""
        self.links = {each: LinkRow(each, each.delay_s, states={}, views={}) for each in LINKS}
        self.flows = {each: FlowRow(each, history=[]) for each in FLOWS}
        self.happenings: list[Happening] = []
        self.lines: deque[Line] = deque(maxlen=LINES_MAX)
        self.problems: list[str] = []
        self.addresses: dict[str, str] = {}
        self.matched: set[str] = set()
        self.counters: dict[str, dict[str, int]] = {}
        self.hushed: set[str] = set()
        self.finished: set[str] = set()
        self.gone: set[str] = set()
        """Peers whose process ended before its time."""
        self._on_line = on_line

    @property
    def elapsed_s(self) -> float:
        """Since the publishers began."""
        return time.monotonic() - self.started_at if self.started_at is not None else 0.0

    def links_up(self) -> int:
        """How many links are up at both ends, with a measured delay."""
        return sum(
            row.state == "up" and sum(view.delay_ms > 0 for view in row.views.values()) == 2
            for row in self.links.values()
        )

    def say(self, text: str, tone: str = "plain", at: float | None = None) -> None:
        """Add a line to the story."""
        line = Line(time.monotonic() if at is None else at, text, tone)
        self.lines.append(line)
        if self._on_line is not None:
            self._on_line(line)

    def fail(self, text: str) -> None:
        """Note what went wrong; the run does not count as good."""
        self.problems.append(text)
        self.say(text.partition("\n")[0], "bad")

    def take(self, peer: str, event: Event) -> None:
        """A peer's process told something."""
        if isinstance(event, Status):
            self._take_status(peer, event)
        elif isinstance(event, PathSeen):
            self._take_path(peer, event)
        elif isinstance(event, LinkSeen):
            self._take_link(peer, event)
        elif isinstance(event, Ready):
            self.addresses[peer] = event.address
        elif isinstance(event, Matched):
            self.matched.add(event.topic)

    def lost_peer(self, peer: str, text: str) -> None:
        """A peer's process ended before its time."""
        self.gone.add(peer)
        for row in self.links.values():
            row.states.pop(peer, None)
            row.views.pop(peer, None)
        self.fail(text)

    def happened(self, step: Step, at: float) -> None:
        """A step was played at this moment."""
        row = self.links[step.link]
        was_dead = row.trouble is Trouble.DEAD
        if step.trouble is Trouble.RESTORED:
            affected = [
                flow.flow
                for flow in self.flows.values()
                if step.link.is_on(flow.home) and not step.link.is_on(flow.path)
            ]
            row.trouble, row.set_delay_s = None, step.link.delay_s
            text = f"link {step.link.name} restored" + ("" if was_dead else _delays(step.link))
        else:
            affected = [flow.flow for flow in self.flows.values() if step.link.is_on(flow.path)]
            row.trouble = step.trouble
            text = f"link {step.link.name} dies: nothing passes, nobody is told"
            if step.trouble is Trouble.DEGRADED:
                row.set_delay_s = DEGRADED_S
                text = f"link {step.link.name} degraded{_delays(step.link, DEGRADED_S)}"
        self.say(text, "good" if step.trouble is Trouble.RESTORED else "bad", at)
        playing = [flow for flow in affected if not {flow.source, flow.destination} & self.gone]
        self.happenings.append(Happening(step, at, playing, moved=[]))

    def verdict(self) -> None:
        """Note every flow that was not delivering at the end as a problem."""
        for row in self.flows.values():
            if not row.delivering:
                self.problems.append(f"{row.flow.name} was not delivering at the end")

    def _take_status(self, peer: str, status: Status) -> None:
        self.counters[peer] = status.counters
        views = {view.peer: view for view in status.links}
        for link, row in self.links.items():
            if peer in (link.first, link.second):
                other = link.second if peer == link.first else link.first
                row.views.pop(peer, None)
                if other in views:
                    row.views[peer] = views[other]
        for view in status.flows:
            flow = self._flow(view.topic, peer)
            flow.view = view
            if status.hushed and flow.delivering is None:
                flow.delivering = view.rate >= ALIVE_SHARE * RATE
        for flow in self.flows.values():
            flow.sent = status.published.get(flow.flow.topic, flow.sent)
        if status.hushed:
            self.hushed.add(peer)
        if status.final:
            self.finished.add(peer)

    def _take_link(self, peer: str, seen: LinkSeen) -> None:
        row = self.links[find_link(peer, seen.neighbour)]
        before = row.state
        row.states[peer] = seen.state
        after = row.state
        if self.started_at is None or before == after or self.hushed:
            return
        for happening in reversed(self.happenings):
            if happening.step.link == row.link:
                wanted = after == "up" if happening.step.trouble is Trouble.RESTORED else after != "up"
                if happening.noticed_s is None and wanted:
                    happening.noticed_s = seen.at - happening.at
                break
        tone = "good" if after == "up" else "bad"
        self.say(f"{peer} finds its link to {seen.neighbour} {seen.state}", tone, seen.at)

    def _take_path(self, peer: str, seen: PathSeen) -> None:
        row = self._flow(seen.topic, peer)
        row.path = seen.path
        row.home = row.home or seen.path
        row.history.append((seen.at, seen.path))
        del row.history[:-HISTORY_MAX]
        self._judge(row, seen.at)

    def _judge(self, row: FlowRow, at: float) -> None:
        """Whether a flow's path answers the last thing that happened to a link of its."""
        for happening in self.happenings:
            step = happening.step
            is_answered = any(reaction.flow == row.flow for reaction in happening.moved)
            if row.flow not in happening.affected or is_answered or at < happening.at:
                continue
            if step.link.is_on(row.path) != (step.trouble is Trouble.RESTORED):
                continue
            reaction = Reaction(row.flow, row.path, at - happening.at)
            happening.moved.append(reaction)
            again = " again" if step.trouble is Trouble.RESTORED else ""
            took = f"{reaction.after_s:.2f} s"
            self.say(f"{row.flow.name}{again} takes {show_path(row.path)} after {took}", "good", at)

    def _flow(self, topic: str, destination: str) -> FlowRow:
        return next(
            row
            for row in self.flows.values()
            if (row.flow.topic, row.flow.destination) == (topic, destination)
        )


def show_path(path: Path) -> str:
    """A path as people read it."""
    return "→".join(path)


def missing(board: Board) -> str:
    """What a mesh that does not come up is waiting for."""
    lacking = [peer for peer in PEERS if peer not in board.addresses]
    if lacking:
        return f"not listening yet: {', '.join(lacking)}"
    down = [link.name for link, row in board.links.items() if row.state != "up"]
    if down:
        return f"links not up yet: {', '.join(down)}"
    topics = sorted({flow.topic for flow in FLOWS} - board.matched)
    return f"subscribers not known yet: {', '.join(topics)}" if topics else "delays not measured yet"


def _delays(link: Link, to_s: float | None = None) -> str:
    now = link.delay_s if to_s is None else to_s
    before = DEGRADED_S if to_s is None else link.delay_s
    return f": {before * 1e3:.0f} → {now * 1e3:.0f} ms one way"
