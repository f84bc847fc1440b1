"""The program's own log: structlog on stderr, for people or as JSON lines. Not the records of `--log-dir`."""

import logging
import sys
from typing import Literal

import structlog
from structlog.typing import Processor


def configure(form: Literal["console", "json"], level: str) -> None:
    """From now on, in this process."""
    before: list[Processor] = [structlog.contextvars.merge_contextvars, structlog.processors.add_log_level]
    if form == "json":
        last: list[Processor] = [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.dict_tracebacks,
            structlog.processors.JSONRenderer(),
        ]
    else:
        last = [
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    structlog.configure(
        processors=[*before, *last],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
