"""The configuration: mistakes are told at once, presets say what they are for, no value makes a node spin."""

import math

import pytest

from anabranch.overlay.config import Config
from anabranch.overlay.errors import UsageError
from anabranch.overlay.qos import Role, Variant

NUMBERS = [name for name in Config.__struct_fields__ if type(getattr(Config(), name)) in (int, float)]
PERIODS = [
    "probe_interval_s",
    "probe_fast_interval_s",
    "suspect_after_s",
    "hello_timeout_s",
    "dial_interval_s",
    "record_refresh_s",
]
"""Timers that are set again by their own firing: zero would never let time pass."""
TABLES = ["cache_max", "streams_max", "links_max", "links_opening_max", "records_max", "link_queue_max_bytes"]
"""Tables that make room by taking the oldest out: there has to be one."""


def complaint(**changes: object) -> str:
    with pytest.raises(UsageError) as caught:
        Config(**changes)  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.parametrize("name", NUMBERS)
def test_no_number_may_be_negative(name: str) -> None:
    assert f"{name} = -1" in complaint(**{name: -1})


@pytest.mark.parametrize("name", [name for name in NUMBERS if name.endswith("_s")])
def test_no_time_may_be_endless_or_no_number(name: str) -> None:
    for value in (math.nan, math.inf):
        assert name in complaint(**{name: value})


@pytest.mark.parametrize("name", PERIODS)
def test_no_period_may_be_zero(name: str) -> None:
    assert name in complaint(**{name: 0})


@pytest.mark.parametrize("name", TABLES)
def test_no_table_may_be_without_room(name: str) -> None:
    assert name in complaint(**{name: 0})


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"ewma_weight": 0.0}, "ewma_weight"),
        ({"ewma_weight": 1.1}, "ewma_weight"),
        ({"down_after_s": 0.6}, "suspect_after_s"),
        ({"record_lifetime_s": 60.0}, "record_refresh_s"),
        ({"bundle_max_bytes": 0}, "bundle_max_bytes"),
        ({"payload_max_bytes": 1000, "bundle_max_bytes": 1001}, "payload_max_bytes"),
    ],
)
def test_values_that_contradict_each_other_are_named(changes: dict[str, object], names: str) -> None:
    assert names in complaint(**changes)


def test_a_variant_given_as_text_is_that_variant_or_a_mistake() -> None:
    """A text that compares equal but is not the member would silently route as something else."""
    try:
        config = Config(variant="dp", role="client")  # type: ignore[arg-type]
    except UsageError:
        return
    assert config.variant is Variant.DP
    assert config.role is Role.CLIENT


def test_replace_checks_again_and_names_an_unknown_setting() -> None:
    assert Config().replace(links_max=3).links_max == 3
    with pytest.raises(UsageError, match="down_after_s"):
        Config().replace(down_after_s=0.1)
    with pytest.raises(UsageError, match="link_max"):
        Config().replace(link_max=3)


def test_presets_take_changes_and_grow_more_patient_with_distance() -> None:
    presets = [Config.local(), Config.lan(), Config.wan(), Config.harmony()]
    patience = [preset.down_after_s for preset in presets]
    assert patience == sorted(set(patience))
    assert Config.wan() == Config()
    assert (Config.harmony().probe_interval_s, Config.harmony().search_interval_s) == (5.0, 30.0)
    for preset in (Config.local, Config.lan, Config.wan, Config.harmony):
        assert preset(links_max=7).links_max == 7
        with pytest.raises(UsageError, match="nonsense"):
            preset(nonsense=1)


def test_a_configuration_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Config().links_max = 1  # type: ignore[misc]
