"""Profiles of links in files: JSON, as `anabranch analyze` writes it. Reads and writes, decides nothing."""

from pathlib import Path

import msgspec

from anabranch.overlay.errors import UsageError
from anabranch.overlay.profiles import Profile

PROFILE_MAX_BYTES = 256 * 1024 * 1024


def load_profile(path: str | Path) -> Profile:
    """What was learned about links; UsageError when the file cannot be read or is no profile."""
    place = Path(path)
    try:
        if place.stat().st_size > PROFILE_MAX_BYTES:
            raise UsageError(f"profile {str(place)!r}: larger than {PROFILE_MAX_BYTES} bytes")
        data = place.read_bytes()
    except OSError as error:
        raise UsageError(f"profile {str(place)!r}: {error.strerror}; name one that can be read") from None
    try:
        return msgspec.json.decode(data, type=Profile)
    except UsageError as error:
        raise UsageError(f"profile {str(place)!r}: {error}") from None
    except msgspec.MsgspecError as error:
        raise UsageError(f"profile {str(place)!r}: {error}; make one with anabranch analyze") from None


def save_profile(profile: Profile, path: str | Path) -> None:
    """Write it, whole or not at all."""
    place = Path(path)
    part = place.with_name(place.name + ".part")
    part.write_bytes(msgspec.json.format(msgspec.json.encode(profile), indent=2) + b"\n")
    part.replace(place)
