"""Logs of the server: one line an event on standard error, JSON unless a person watches."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, Final

import structlog

from tollbar.vault.redactor import Redactor

_SHARED: Final[list[Any]] = [
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def configure_logs(*, level: str = "INFO") -> None:
    """Sets up every log of the process, those of libraries included; done before they are imported."""
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    _write_by(_formatter(()))
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("tollbar").setLevel(level)


def redact_logs(redactor: Redactor) -> None:
    """From now on takes secrets out of every line, whoever wrote it: of events, of tracebacks, of libraries."""

    def redacted(_logger: object, _name: str, line: str) -> str:
        return redactor.text(line)

    _write_by(_formatter((redacted,)))


def _formatter(last: tuple[Callable[[object, str, str], str], ...]) -> logging.Formatter:
    renderer: Any = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    remove, trace = structlog.stdlib.ProcessorFormatter.remove_processors_meta, structlog.processors.format_exc_info
    chain: list[Any] = [remove, trace, renderer, *last]
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=_SHARED, processors=chain)


def _write_by(formatter: logging.Formatter) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.getLogger().handlers[:] = [handler]
