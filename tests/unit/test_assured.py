"""Bundles with a guarantee as others may send them: what is wrong with one run spares all the rest."""

import pytest
from support_nodes import Driver, tail

from anabranch.overlay.actions import DeliverAssured
from anabranch.overlay.assured import AssuredRun, Progress, Start, StreamKey, decode_progress, encode_assured
from anabranch.overlay.codec import encode_body, encode_bundle_header, encode_tail
from anabranch.overlay.errors import PeerError
from anabranch.overlay.headers import Flag, Run

STREAM = StreamKey(1, 1, False)


def assured(first: int, **selection: object) -> AssuredRun:
    """One message from here on."""
    starts = [Start("me", "", first)]
    return AssuredRun(STREAM, Run("a", 1, first, [b"x"]), starts, **selection)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "refused", [[(0, 0)], [(2, 1)], [(-1, 1)], [(0, 6)], [(0, 1), (4, 9)], [(0,)], [("a", 1)], 7]
)
def test_refusals_lie_within_what_is_confirmed(refused: object) -> None:
    told = [STREAM, "", 0, 5, 5, 0, refused]
    with pytest.raises(PeerError):
        decode_progress([encode_body([told])])
    assert decode_progress([encode_body([Progress(STREAM, "", 0, 5, 5, 0, [(0, 2), (4, 5)])])])


@pytest.mark.parametrize(
    "selection", [{"to": "load >"}, {"attributes": {"x": [[1]]}}, {"attributes": {"": 1}}, {"to": "x" * 9000}]
)
def test_of_a_bundle_with_a_broken_selection_nothing_is_taken(selection: dict[str, object]) -> None:
    driver = Driver()
    link = driver.neighbour("b")
    driver.subscribe("a")
    for hop, runs in enumerate(([assured(0), assured(1, **selection)], [assured(0), assured(1)])):
        header = encode_bundle_header(int(Flag.ASSURED), hop, hop, 0, 0, encode_tail(tail("b")))
        driver.frames(link, header, *encode_assured(runs, 1000))
    assert driver.drops() == {"malformed": 1}
    taken = [each.run.first_sequence for each in driver.actions if isinstance(each, DeliverAssured)]
    assert taken == [0, 1]
