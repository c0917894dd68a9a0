"""How the engine library is set up in a process: its configuration, its environment, its log."""

from __future__ import annotations

import logging
import os
from typing import Final

import structlog
from dbos import DBOSConfig, DBOSPortableJSONSerializer

from tollbar.engine.errors import EngineRefused
from tollbar.engine.migrate import SCHEMA

ENGINE_VERSION: Final = "1"
"""Rises only when a flow's step order changes in a way that a patch cannot bridge."""
NAME: Final = "tollbar"

_log = structlog.get_logger()


def engine_config(url: str, executor_id: str, *, may_restart: bool = True) -> DBOSConfig:
    """Returns the configuration of a working process; `executor_id` is fresh for each start.

    `may_restart` false: the database lives and dies with this process, so no connection is tested before its use.
    """
    return {
        "name": NAME,
        "system_database_url": url,
        "dbos_system_schema": SCHEMA,
        "serializer": DBOSPortableJSONSerializer(),
        "executor_id": executor_id,
        "application_version": ENGINE_VERSION,
        "run_migrations": False,
        "max_executor_threads": 32,
        "sys_db_pool_size": 10,
        # Events and streams of the library are not used; its default wakes a thread a hundred times a second.
        "notification_coalesce_sec": 0.25,
        "db_engine_kwargs": {"pool_pre_ping": may_restart},
        "log_level": "WARNING",
        "enable_otlp": False,
    }


def check_environment() -> None:
    """Refuses the variable that would replace our configuration, and warns of those that change nothing."""
    if os.environ.get("DBOS__CLOUD", "").lower() == "true":
        raise EngineRefused(
            "DBOS__CLOUD=true would replace its name, database and schema", hint="Unset DBOS__CLOUD and start again."
        )
    foreign = sorted(name for name in os.environ if name.startswith("DBOS_"))
    if foreign:
        _log.warning("variables of the engine library are set and have no effect here", names=foreign)


def quiet_log() -> None:
    """Sends the library's log through our handlers, without the lines that a cancel or a stop writes; idempotent."""
    log = logging.getLogger("dbos")
    if not log.handlers:
        # With a handler of its own the library neither adds a console one nor keeps its lines to itself.
        log.addHandler(logging.NullHandler())
    log.addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    """A cancel and a stop are outcomes, not faults: the library logs them as errors with tracebacks."""
    if record.exc_info and record.exc_info[0] is not None:
        return record.exc_info[0].__name__ != "DBOSAwaitedWorkflowCancelledError"
    text = record.getMessage()
    return not (text.startswith("Asyncio task cancelled for") or "was cancelled during execution" in text)
