"""What options of a command change in a scenario: its length, its variants. Used by several commands."""

import msgspec

from anabranch.overlay.errors import UsageError
from anabranch.tools.scenarios.checks import check_scenario
from anabranch.tools.scenarios.schema import Scenario
from anabranch.tools.scenarios.settings import variant_settings


def narrowed(scenario: Scenario, seconds: float) -> Scenario:
    """The scenario cut short or made longer; what would happen after its end is left out."""
    if not 0 < seconds <= 1e7:
        raise UsageError(f"--seconds {seconds}: above 0 and at most 10,000,000")
    run = msgspec.structs.replace(scenario.run, duration_s=seconds)
    shortened = msgspec.structs.replace(
        scenario,
        run=run,
        events=[event for event in scenario.events if event.at_s <= seconds],
        flows=[flow for flow in scenario.flows if (flow.start_s or 0.0) < seconds],
        subscriptions=[each for each in scenario.subscriptions if each.start_s < seconds],
    )
    try:
        check_scenario(shortened)
    except UsageError as error:
        raise UsageError(f"--seconds {seconds:g}: {error}") from None
    return shortened


def variants_of(scenario: Scenario, text: str) -> list[str]:
    """The variants that an option lists; UsageError for one that there is not."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UsageError(f"--variants {text!r}: name at least one, as in dp,bp")
    for name in names:
        try:
            variant_settings(scenario, name)
        except UsageError as error:
            raise UsageError(f"--variants {text}: {error}") from None
    return names
