"""Whom a publication is for: its attributes, which filters look at, and the sites that it selects.

Read from what an application or another peer says; kept per text, because the same ones come again and again.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.overlay.attributes import Plain, Row, check_attributes, plain, sound_attributes
from anabranch.overlay.config import Config
from anabranch.overlay.errors import DropReason, ExpressionError, PeerError, UsageError
from anabranch.overlay.expressions import Expression, Expressions

SITE_TOPIC = "@site"
"""The topic of publications that are for sites, whatever they subscribed to."""


def site_topic(command: str, to: str | None) -> str:
    """The topic of what was said without one: it must name sites then."""
    if to is None:
        raise UsageError(
            f"{command} without a topic: name the sites it is for, as in to=\"region = 'north'\""
        )
    return SITE_TOPIC


class Selected(msgspec.Struct, frozen=True):
    """Whom one publication is for."""

    attributes: Row
    to: Expression | None
    """The sites; None for all."""
    wire: tuple[dict[str, Plain], str]
    """The same as a `SelectedRun` carries it."""


class Selections:
    """Checks and remembers expressions: our own against the declared models, those of others without."""

    def __init__(self, config: Config) -> None:
        self._publication_model = config.message_attributes
        self._site_model = config.site_attributes
        self._filters = Expressions(config.cache_max, config.message_attributes)
        self._sites = Expressions(config.cache_max, config.site_attributes)
        self._foreign = Expressions(config.cache_max)

    def filter(self, where: str) -> Expression:
        """A filter over publications that our application wrote; ExpressionError if it is none."""
        if not isinstance(where, str):
            raise UsageError(f"where = {where!r:.100}: an expression over attributes of messages, as a text")
        return self._filters.get(where)

    def site_attributes(self, attributes: Mapping[str, object]) -> Row:
        """What our application says that this site is."""
        return check_attributes(attributes, self._site_model)

    def selected(self, attributes: Mapping[str, object] | None, to: str | None) -> Selected:
        """Whom a publication of our application is for; UsageError for what cannot be."""
        if to is not None and not isinstance(to, str):
            raise UsageError(f"to = {to!r:.100}: an expression over attributes of sites, as a text")
        row = check_attributes(attributes, self._publication_model) if attributes else {}
        expression = self._sites.get(to) if to is not None else None
        return Selected(row, expression, (plain(row), expression.text if expression else ""))

    def foreign(self, text: str) -> Expression:
        """An expression that another peer sent; PeerError if it is none."""
        try:
            return self._foreign.get(text)
        except ExpressionError as error:
            raise PeerError(DropReason.MALFORMED, f"expression: {error.what}") from None

    def read(self, attributes: Mapping[str, Any], to: str) -> Selected:
        """Whom a publication of another peer is for; PeerError if that is malformed."""
        return Selected(sound_attributes(attributes), self.foreign(to) if to else None, ({}, to))
