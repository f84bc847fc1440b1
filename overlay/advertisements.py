"""What the name of a topic says about its advertisement: whether it is restricted, and by which id.

No table is needed for that: a level of the name that begins with the mark holds the id, so a peer that never
heard of a restricted topic knows that it has to deny it.
"""

from anabranch.security.synopses import RESTRICTED_MARK

ID_CHARS = 65
"""UUID and hash of the terms, in hexadecimal."""
UNKNOWN = ""
"""The id of a topic that is marked, but by no id: nobody may use it."""
_AT = len(RESTRICTED_MARK)


def restricted_id(topic: str) -> str | None:
    """The id of a restricted topic, or of the one above it; None for topics that everybody may use."""
    if RESTRICTED_MARK not in topic:
        return None
    found = [level[_AT:] for level in topic.split("/") if level.startswith(RESTRICTED_MARK)]
    if not found:
        return None
    return found[0] if len(found) == 1 and len(found[0]) == ID_CHARS else UNKNOWN
