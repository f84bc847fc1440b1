"""What is asked and answered about topics, as it travels inside letters."""

import msgspec

from anabranch.security.grants import Grant, Revocation
from anabranch.transport.topics.query import Query

LOCATE, CREATE, ADVERTISE, FIND, KEY, GRANT, REVOKE = (
    "locate",
    "create",
    "advertise",
    "find",
    "key",
    "grant",
    "revoke",
)


class Call(msgspec.Struct, array_like=True):
    """A question."""

    what: str
    body: bytes
    reply_key: bytes
    """Answers are sealed to it; made for this question alone."""


class Here(msgspec.Struct, array_like=True):
    """A discovery node answers LOCATE."""

    key: bytes
    """What is asked of it is sealed to this."""
    private: bool


class Creation(msgspec.Struct, array_like=True):
    """CREATE."""

    terms: msgspec.Raw
    descriptors: bytes
    certificate: bytes
    """The creator's, which will countersign."""


class Bundle(msgspec.Struct, array_like=True):
    """Advertisements with the certificates that they need: ADVERTISE, and answers to CREATE and FIND."""

    certificates: list[bytes]
    topics: list[list[bytes]]
    partial: bool = False
    error: str = ""
    revocations: list[Revocation] = []


class Handing(msgspec.Struct, array_like=True):
    """GRANT, and the file of a grant: a right with everything needed to check and use it."""

    certificates: list[bytes]
    topic: list[bytes]
    chain: list[Grant]


class Revoking(msgspec.Struct, array_like=True):
    """REVOKE."""

    certificates: list[bytes]
    topic: list[bytes]
    revocation: Revocation


class KeyWanted(msgspec.Struct, array_like=True):
    """KEY: a topic's key that was made at this time or later."""

    topic: str
    made_at_us: int
    exactly: bool
    """Whether an older key is wanted, to read what was closed with it."""


class KeyGiven(msgspec.Struct, array_like=True):
    """The answer to KEY."""

    made_at_us: int
    secret: bytes


BROKEN = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError)
call_decoder = msgspec.msgpack.Decoder(Call)
here_decoder = msgspec.msgpack.Decoder(Here)
creation_decoder = msgspec.msgpack.Decoder(Creation)
bundle_decoder = msgspec.msgpack.Decoder(Bundle)
handing_decoder = msgspec.msgpack.Decoder(Handing)
revoking_decoder = msgspec.msgpack.Decoder(Revoking)
query_decoder = msgspec.msgpack.Decoder(Query)
key_wanted_decoder = msgspec.msgpack.Decoder(KeyWanted)
key_given_decoder = msgspec.msgpack.Decoder(KeyGiven)


def asking_context(token: int) -> bytes:
    """What a question's letter is bound to."""
    return b"ask %d" % token


def answering_context(question: bytes) -> bytes:
    """What its answers are bound to: the digest of the question's letter."""
    return b"answer " + question
