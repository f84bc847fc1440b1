"""Profiles of links: how they change what paths are worth, and which are taken."""

import itertools
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.choosing import Choosing
from anabranch.overlay.config import Config
from anabranch.overlay.disjoint import joint_availability
from anabranch.overlay.errors import UsageError
from anabranch.overlay.headers import LinkEntry
from anabranch.overlay.identifiers import PeerId
from anabranch.overlay.node import Node
from anabranch.overlay.profiles import Beliefs, FateGroup, LinkShare, Profile
from anabranch.overlay.qos import Demand, Variant
from anabranch.overlay.topology import Topology
from anabranch.security.signing import NullSigner, NullVerifier
from anabranch.transport.peer import Peer
from anabranch.transport.profiles import load_profile, save_profile

LINKS = (
    ("s", "a", 10),
    ("a", "t", 10),
    ("s", "b", 12),
    ("b", "t", 12),
    ("s", "c", 20),
    ("c", "t", 20),
)
DUCT = FateGroup([("a", "t"), ("t", "b")], 0.99)
PROFILE = Profile(
    links=[LinkShare((a, b), 0.99 if b == "t" and a != "c" else 0.9999) for a, b, _ in LINKS], groups=[DUCT]
)


def choosing(variant: Variant = Variant.ADAPTIVE, profile: Profile | None = PROFILE) -> Choosing:
    topology = Topology(0.1, 0.003)
    entries: dict[str, list[LinkEntry]] = {}
    for a, b, delay_ms in LINKS:
        entries.setdefault(a, []).append(LinkEntry(b, delay_ms * 1000, 0, 0, 1_000_000))
        entries.setdefault(b, []).append(LinkEntry(a, delay_ms * 1000, 0, 0, 1_000_000))
    topology.set_own("s", entries.pop("s"))
    for peer, links in entries.items():
        topology.set_links(peer, links)
    chosen = Choosing("s", Config(variant=variant), topology)
    chosen.beliefs = Beliefs(profile)
    return chosen


def paths(chosen: Choosing, demand: Demand) -> set[tuple[str, ...]]:
    choice, _ = chosen.choose("t", demand, None, ("s", "a", "t"), True)
    assert choice is not None
    return set(choice.paths)


A, B, C = ("s", "a", "t"), ("s", "b", "t"), ("s", "c", "t")


def test_two_paths_of_one_fate_don_t_make_an_availability() -> None:
    assert paths(choosing(profile=None), Demand(availability=0.99999)) == {A, B}
    assert paths(choosing(), Demand(availability=0.999)) == {C}
    assert paths(choosing(), Demand(availability=0.99999)) == {A, C}


def test_what_paths_share_counts_once() -> None:
    choice, _ = choosing().choose("t", Demand(availability=0.9999), None, A, True)
    assert choice is not None
    # c alone: both its links; a and c: the duct and three links fail independently.
    a_up, c_up = 0.9999 * 0.99, 0.9999 * 0.9999
    assert choice.availability == pytest.approx(1 - (1 - a_up) * (1 - c_up), abs=1e-6)


def test_pairs_and_copies_keep_clear_of_a_shared_fate() -> None:
    assert paths(choosing(Variant.BP_QOS_MP, None), Demand()) == {A, B}
    assert paths(choosing(Variant.BP_QOS_MP), Demand()) == {A, C}
    troubled = choosing()
    troubled.quiet = frozenset({"a"})
    assert paths(troubled, Demand()) == {A, C}


def test_a_deadline_goes_before_a_shared_fate() -> None:
    assert paths(choosing(Variant.BP_QOS_MP), Demand(deadline_s=0.030)) == {A, B}


def test_a_link_that_is_worse_now_than_its_profile_counts_as_it_is() -> None:
    chosen = choosing()
    topology = chosen._topology
    topology.set_own("s", [LinkEntry("a", 10_000, 0, 0, 500_000), LinkEntry("b", 12_000, 0, 0, 1_000_000)])
    choice, _ = chosen.choose("t", Demand(), None, A, True)
    assert choice is not None
    assert choice.availability == pytest.approx(0.5 * 0.99, abs=1e-3)


@given(
    st.lists(st.floats(0, 1), min_size=6, max_size=6),
    st.floats(0, 1),
    st.sets(st.integers(0, 5), max_size=6),
    st.sets(st.sampled_from([A, B, C]), min_size=1),
)
def test_joint_availability_with_a_shared_cause_is_that_of_all_worlds(
    alone: list[float], common: float, members: set[int], taken: set[tuple[str, ...]]
) -> None:
    hops = [(min(a, b), max(a, b)) for a, b, _ in LINKS]
    up_of = dict(zip(hops, alone, strict=True))
    risks = {hops[number]: ((("", "group"), common),) for number in members}
    found = joint_availability(
        sorted(taken), lambda here, there: up_of[min(here, there), max(here, there)], risks
    )
    total = 0.0
    for world in itertools.product((True, False), repeat=7):
        *links, cause = world
        chance = common if cause else 1 - common
        for up, share in zip(links, alone, strict=True):
            chance *= share if up else 1 - share
        works = {
            hop: up and (cause or n not in members)
            for n, (hop, up) in enumerate(zip(hops, links, strict=True))
        }
        if any(all(works[min(h), max(h)] for h in itertools.pairwise(path)) for path in taken):
            total += chance
    assert found == pytest.approx(total, abs=1e-9)


def test_a_profile_comes_back_from_its_file(tmp_path: Path) -> None:
    place = tmp_path / "profile.json"
    save_profile(PROFILE, place)
    assert load_profile(place) == PROFILE
    assert [each.name for each in tmp_path.iterdir()] == ["profile.json"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "make one with anabranch analyze"),
        ('{"version": 2}', "version 2"),
        ('{"links": [{"between": ["a", "a"], "availability": 1}]}', "names of two peers"),
        ('{"links": [{"between": ["a", "b/c"], "availability": 1}]}', "names of two peers"),
        ('{"links": [{"between": ["a", "b"], "availability": 1.5}]}', "availability 1.5"),
        ('{"groups": [{"links": [["a", "b"]], "availability": -1}]}', "availability -1"),
    ],
)
def test_a_file_that_is_no_profile_is_refused(tmp_path: Path, text: str, said: str) -> None:
    place = tmp_path / "profile.json"
    place.write_text(text)
    with pytest.raises(UsageError, match=said):
        load_profile(place)
    with pytest.raises(UsageError, match="nothing here"):
        load_profile(tmp_path / "nothing here")


def test_a_signature_covers_all_but_itself() -> None:
    moved = msgspec.structs.replace(PROFILE, groups=[])
    assert PROFILE.signed_bytes() != moved.signed_bytes()
    assert PROFILE.signed_bytes() == msgspec.structs.replace(PROFILE, signature=b"x").signed_bytes()


class _Signer(NullSigner):
    credential = b"paper"

    def sign(self, payload: bytes) -> bytes:
        return b"by me: " + payload


class _Verifier(NullVerifier):
    is_open = False

    def learn(self, origin: str, credential: bytes) -> bool:
        return (origin, credential) == ("ops", b"paper")

    def verify_lasting(self, origin: str, payload: bytes, signature: bytes) -> bool:
        return signature == b"by me: " + payload


def test_a_secured_mesh_takes_only_what_is_signed() -> None:
    node = Node(PeerId.parse("s"), Config(), epoch=1, rng=random.Random(1), verifier=_Verifier())
    signed = PROFILE.signed("ops", _Signer())
    node.use_profile(signed)
    changed = msgspec.structs.replace(signed, groups=[])
    for other in (
        PROFILE,
        changed,
        msgspec.structs.replace(signed, origin="eve"),
        PROFILE.signed("ops", NullSigner()),
    ):
        with pytest.raises(UsageError, match="not signed"):
            node.use_profile(other)


def test_a_peer_reads_its_profile_before_it_opens(tmp_path: Path) -> None:
    save_profile(PROFILE, tmp_path / "profile.json")
    Peer("s", profile=tmp_path / "profile.json")
    Peer("s", profile=PROFILE)
    with pytest.raises(UsageError, match="nowhere"):
        Peer("s", profile=str(tmp_path / "nowhere"))
