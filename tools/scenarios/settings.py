"""The Config of a scenario's peers: preset, then [config], then the variant, then the peer's own settings."""

import difflib
import enum
import math
from collections.abc import Mapping
from typing import Any, get_type_hints

import msgspec

from anabranch.overlay.config import Config
from anabranch.overlay.errors import UsageError
from anabranch.overlay.qos import Role, Variant
from anabranch.tools.scenarios.schema import Scenario, VariantSettings

_TYPES: dict[str, Any] = get_type_hints(Config)


def make_config(
    scenario: Scenario,
    variant: str,
    fixed: Mapping[str, Any],
    own: dict[str, Any],
    role: Role,
    where: str,
) -> Config:
    """The settings of one peer; `fixed` is what the form of the mesh asks for, unless the file differs."""
    settings = variant_settings(scenario, variant)
    changes: dict[str, Any] = dict(fixed)
    tables = (
        ("config", scenario.config),
        (f"variants.{variant}.config", settings.config),
        (f"{where}, config", own),
    )
    for place, table in tables:
        changes |= {key: check_setting(key, value, place) for key, value in table.items()}
    if variant in tuple(Variant) and "variant" not in settings.config | own:
        changes["variant"] = Variant(variant)
    chosen = settings.preset or scenario.preset
    preset = getattr(Config, "wan" if chosen == "default" else chosen)
    try:
        config: Config = preset(**changes | {"role": role})
    except UsageError as error:
        raise UsageError(f"settings of {where}, variant {variant!r}: {error}") from None
    return config


def variant_settings(scenario: Scenario, variant: str) -> VariantSettings:
    """What a variant changes; UsageError names the variants there are."""
    found = scenario.variants.get(variant)
    if found is None:
        if variant not in tuple(Variant):
            known = ", ".join([*scenario.variants, *Variant])
            raise UsageError(
                f"unknown variant {variant!r}: one of {known}, or describe it in [variants.{variant}]"
            )
        found = VariantSettings()
    return found


def check_setting(key: str, value: object, place: str) -> object:
    """The value of one Config field in its own type; UsageError names table, key and what would do."""
    if key not in _TYPES:
        close = difflib.get_close_matches(key, _TYPES, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"one of {', '.join(_TYPES)}"
        raise UsageError(f"{place}: unknown key {key!r}: {hint}")
    if key == "role":
        raise UsageError(f"{place}: 'role' stands in [[peers]], as in role = \"client\"")
    wanted = _TYPES[key]
    try:
        converted: object = msgspec.convert(value, wanted)
    except msgspec.ValidationError:
        raise UsageError(f"{place}.{key} = {value!r}: expected {_described(wanted)}") from None
    if isinstance(converted, float) and not math.isfinite(converted):
        raise UsageError(f"{place}.{key} = {value!r}: expected a finite number")
    return converted


def _described(wanted: Any) -> str:
    if isinstance(wanted, enum.EnumType):
        values: list[Any] = list(wanted)
        return f"one of {', '.join(values)}"
    return {float: "a number", int: "a whole number", bool: "true or false"}.get(wanted, "a text")
