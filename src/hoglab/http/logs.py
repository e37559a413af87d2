"""Logging: structured lines on standard error, without secrets."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

import orjson
import structlog

from hoglab.patterns import IGNORECASE, searched
from hoglab.storage.database.errors import (
    DatabaseBusyError,
    DatabaseFullError,
    DatabaseMovedError,
    DatabaseUnreachableError,
    explain,
)
from hoglab.storage.event_log import EventLogFullError
from hoglab.storage.event_store import (
    EventStoreUnavailableError,
    QueryCancelledError,
    QueryMemoryError,
    QueryTimeoutError,
)
from hoglab.terminal import line, plain

if TYPE_CHECKING:
    from structlog.typing import Processor

EXPECTED_FAULTS: Final[tuple[type[Exception], ...]] = (
    DatabaseBusyError,
    DatabaseFullError,
    DatabaseMovedError,
    DatabaseUnreachableError,
    EventLogFullError,
    EventStoreUnavailableError,
    QueryCancelledError,
    QueryMemoryError,
    QueryTimeoutError,
    ConnectionError,
)
"""Faults of what a server depends on: where in the program they were met says nothing, so they have no traceback."""

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["console", "json"]

_SECRET = searched(r"((?:^|&)(?:personal_api_key|api_key|token|secret|password)=)[^&]*", IGNORECASE)
_OF_SEVERAL_LINES = frozenset({"exception", "stack"})
_KEY = searched(r"\b(ph[xs]_)[A-Za-z0-9_-]{8,}")


def configure_logging(level: Level = "info", form: Format = "console", stream: TextIO | None = None) -> None:
    """Send the log lines of this program, and those of libraries, to ``stream`` (standard error).

    Tracebacks are shown without the values of variables, which may be secrets; keys in messages are blotted out.
    """
    threshold = getattr(logging, level.upper())
    stream = stream or sys.stderr
    shared: list[Processor] = [
        _with_request_id,
        _with_reason,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: list[Processor]
    if form == "json":
        renderer = [
            structlog.processors.format_exc_info,
            _without_keys,
            structlog.processors.JSONRenderer(serializer=_json_line),
        ]
    else:
        renderer = [
            structlog.processors.format_exc_info,
            _without_keys,
            _plain,
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(threshold, logging.WARNING))
    # It warns of each malformed form, which is the client's affair and is answered with a 400.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)


_request_id: ContextVar[str] = ContextVar("hoglab_request_id")


def bind_request_id(request_id: str) -> None:
    """Bind the request's id to every log line about it."""
    _request_id.set(request_id)


def _with_request_id(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    request_id = _request_id.get(None)
    if request_id is not None:
        event.setdefault("request_id", request_id)
    return event


def expected_fault(error: BaseException) -> Exception | None:
    """Return what is known of an error that a server must expect, such as a database that is busy or away; else None.

    Its text is one line. Errors of database drivers are translated.
    """
    known = error if isinstance(error, EXPECTED_FAULTS) else explain(error, "the database")
    return known if isinstance(known, EXPECTED_FAULTS) else None


def _with_reason(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Return an event with the reason of an expected fault in place of its traceback."""
    given = event.get("exc_info")
    error = sys.exception() if given is True else given[1] if isinstance(given, tuple) else given
    fault = expected_fault(error) if isinstance(error, BaseException) else None
    if fault is not None:
        del event["exc_info"]
        event.setdefault("reason", str(fault) or type(fault).__name__)
        event["fault"] = type(fault).__name__
    return event


def _without_keys(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Return the lines of exceptions without keys: they quote the values that they failed on."""
    for name in ("event", "exception"):
        if isinstance(event.get(name), str):
            event[name] = redact_keys(event[name])
    return event


def _plain(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Return an event that cannot move the cursor of a terminal, nor make a second line but for tracebacks."""
    shown: dict[str, Any] = {}
    for name, value in event.items():
        fitting = plain if name in _OF_SEVERAL_LINES else line
        shown[line(name)] = fitting(value) if isinstance(value, str) else value
    return shown


def _json_line(event: Any, **_options: Any) -> str:
    return plain(orjson.dumps(event, default=repr).decode())


def redact_query(query_string: bytes) -> str:
    """Return a query string fit for a log: keys, tokens and secrets are blotted out."""
    text = query_string.decode("utf-8", "replace")
    return redact_keys(_SECRET.sub(r"\1***", text))


def redact_keys(text: str) -> str:
    """Return a text without anything that looks like a secret key."""
    return _KEY.sub(r"\1***", text)


def log_request(logger: Any, *, quiet: bool, **facts: Any) -> None:
    """Log one line about a request that was answered; None values are left out."""
    line = {name: value for name, value in facts.items() if value is not None}
    if facts["status"] >= 500:
        logger.error("request", **line)
    elif quiet:
        logger.debug("request", **line)
    else:
        logger.info("request", **line)
