"""What travels on a link: the fixed header of a bundle, and the structs behind every other kind.

Each message on a link is a list of frames. The first frame starts with the wire version and a kind byte.
A bundle's first frame is the fixed header below followed by its *tail* (who sent it, what is left of the
source route) and, if that is small, its body; otherwise the body is the second frame and further frames are
large payloads. A relay changes hop sequence, elapsed time and tail, and passes the rest on untouched.
"""

import enum
import struct

import msgspec

from anabranch.overlay.attributes import Plain

WIRE_VERSION = 1


class Kind(enum.IntEnum):
    """The second byte of every first frame."""

    BUNDLE = 1
    HELLO = 2
    PROBE = 3
    ECHO = 4
    RECORDS = 5
    DIGEST = 6
    WANT = 7
    BYE = 8
    WHO = 9
    INSPECT = 10
    REPORT = 11
    CONGESTION = 12
    ACK = 13
    QUESTION = 14


class RecordKind(enum.IntEnum):
    """What a signed record tells about its origin. Separate, so that one may change without the others."""

    LINKS = 1
    INTERESTS = 2
    SITES = 3
    ROLES = 4
    DURABLES = 5
    CREDENTIAL = 16
    """What others need to check the origin's signatures. Goes before its other records."""
    REVOCATIONS = 17
    """Revocation lists, which the authority signed: any peer may tell them."""
    RIGHTS = 20
    """Grants that the origin holds, and what creators revoked: see `security/rights.py`."""
    EXCHANGE = 18
    """The key by which others agree with the origin on keys for seals. Goes before all but its credential."""


BUNDLE_HEADER = struct.Struct(">BBHIQQIIQQ")
"""version, kind, flags, tail bytes, hop sequence, bundle sequence, elapsed µs, deadline µs (0: none),
and the acknowledgement of the other direction: see `ACK_HEADER`."""

ACK_HEADER = struct.Struct(">BBQQ")
"""version, kind, the hop sequence after the highest that arrived, which of the 64 before that highest arrived
(bit 0: the one just before)."""


class Flag(enum.IntFlag):
    """Bits in the header of a bundle."""

    ACK_SOON = 1
    """This hop only: the sender keeps little under way and waits for the acknowledgement."""
    GAP_MAY_FILL = 2
    """Something before it was lost on a link and is being sent again: worth waiting for."""
    REQUEST = 16
    """The body is a request for replies: every peer on the tree looks at it."""
    REPLY = 64
    """The body holds reports or prompts, for those who shall deliver it."""
    STATELESS = 128
    """This hop only: the sender keeps no state of the request, so reports to it must name the way."""
    ASSURED = 4
    """The body asks for confirmation by its receivers: `assured.AssuredRun`."""
    CONFIRMS = 8
    """The body confirms what its receiver published: `assured.Progress`."""
    SELECTED = 32
    """The body's runs say whom they are for: `SelectedRun`."""
    LETTER = 512
    """The body is a letter to its receivers: `LetterBody`."""


PROBE_HEADER = struct.Struct(">BBIQ")
"""version, kind, probe sequence, sender's clock in µs."""

ECHO_HEADER = struct.Struct(">BBIQI")
"""version, kind, probe sequence, the probe's clock as received, µs between receiving and echoing."""

PATH_MAX_PEERS = 64
"""Longest path that a bundle may take."""

PASSES_MAX = 2
"""A bundle passes a peer twice at most: a repair may turn back, and needs no more."""

EPOCH_MAX = 2**53
"""Epochs are µs since 1970: none comes near, and none that a peer claims can leave us without a later one."""

MICROSECONDS_MAX = 2**32 - 1
"""Elapsed times saturate here (71 minutes)."""


class Tail(msgspec.Struct, array_like=True):
    """Who published a bundle and what is left of its source route. Shrinks hop by hop; constant per flow."""

    origin: str
    epoch: int
    generation: int
    """Changes when the origin's route changes, or a relay leaves it: receivers then expect reordering."""
    via: list[str]
    """Peers passed so far, the origin first."""
    deliver: bool
    """Whether the peer that reads this is a receiver."""
    branches: list[tuple[str, msgspec.Raw]]
    """Next peers, each with its encoded `Subtree`."""
    destinations: list[str] = []
    """Filled by a light client, which leaves the routing to the peer it is attached to."""
    copies: int = 1
    """Over how many paths it travels: with more than one, what is missing on one may come on another."""


class Subtree(msgspec.Struct, array_like=True):
    """What is left of the route at a next peer."""

    deliver: bool
    branches: list[tuple[str, msgspec.Raw]]


class Run(msgspec.Struct, array_like=True):
    """Consecutive publications of one publisher within a bundle's body."""

    topic: str
    publisher: int
    first_sequence: int
    payloads: list[object]
    large: list[tuple[int, int, bool]] = []
    """(index in payloads, frame number, value): payloads that travel as frames; `value` when the frame is an
    encoded value instead of plain bytes."""


class SelectedRun(Run, array_like=True):
    """Publications that filters or a selection of sites decide about. Its publisher's number stands for one
    set of receivers, so that a jump in the sequence is a loss here too."""

    attributes: dict[str, Plain] = {}
    """What content filters look at; sets as lists."""
    to: str = ""
    """Which sites it is for, as an expression over their attributes; empty: all."""


class Hello(msgspec.Struct, array_like=True):
    """First message in both directions of a link."""

    peer: str
    epoch: int
    """When this incarnation of the peer started, in µs: a restarted peer has a larger one."""
    role: str
    instance: int
    """Random per node, so that a peer recognises itself on the other end."""
    credential: bytes = b""
    """The peer's certificate; empty in an open mesh."""
    proof: bytes = b""
    """Its signature over this hello and over the key of this very connection: see `codec.hello_part`."""


class Record(msgspec.Struct, array_like=True):
    """Something a peer says about itself, flooded through the mesh."""

    origin: str
    epoch: int
    kind: int
    sequence: int
    body: bytes
    signature: bytes
    age_ms: int = 0
    """Time since the origin made it, added up hop by hop; not signed."""


class Records(msgspec.Struct, array_like=True):
    """A batch of records."""

    records: list[Record]


class Digest(msgspec.Struct, array_like=True):
    """What the sender holds: (origin, kind, epoch, sequence). The receiver answers with what is newer."""

    entries: list[tuple[str, int, int, int]]
    last: bool
    """Whether this is the last part; after it the receiver also sends what no part named."""


class Want(msgspec.Struct, array_like=True):
    """Asks for records: (origin, kind)."""

    entries: list[tuple[str, int]]


class Bye(msgspec.Struct, array_like=True):
    """The sender closes this link."""

    reason: str


class Inspect(msgspec.Struct, array_like=True):
    """Asks a peer for its own view."""

    token: int


class Report(msgspec.Struct, array_like=True):
    """The answer to `Inspect`: JSON with links, routes and counters."""

    token: int
    document: bytes


class Congestion(msgspec.Struct, array_like=True):
    """More is published over the link from `here` to `there` than it takes: the publisher shall pause.

    Travels back over the peers that the bundle passed; `back` is what is left of them, the origin first.
    """

    here: str
    there: str
    """The same as `here` when it is an application that does not keep up."""
    pause_us: int
    """How long what waits there will take."""
    back: list[str]
    urgent: bool = False
    """Bundles with a deadline are too many as well: their publishers shall pause too."""


class LinkEntry(msgspec.Struct, array_like=True):
    """One link in a LINKS record, as measured by the record's origin."""

    neighbour: str
    delay_us: int
    jitter_us: int
    loss_ppm: int
    availability_ppm: int
    client: bool = False
    """The neighbour is a light client: a leaf, which makes no LINKS record of its own."""


class RolesBody(msgspec.Struct, array_like=True):
    """Body of a ROLES record."""

    role: str
    addresses: list[str]
    """Where this peer can be dialled."""
    services: list[str] = []
    """What it does for others: `tdn` for a topic discovery node that everybody may know of."""


class Question(msgspec.Struct, array_like=True):
    """Asked of every peer within `ttl` hops; each passes it on once."""

    origin: str
    epoch: int
    token: int
    letter: bytes
    signature: bytes = b""
    ttl: int = 0
    """Hops that are left; not signed."""


class LetterBody(msgspec.Struct, array_like=True):
    """The body of a bundle with a letter."""

    is_answer: bool
    token: int
    """Of the question."""
    letter: bytes
