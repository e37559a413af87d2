"""Appends that wait for the same commit, and how each of them learns its offset or why it failed."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import structlog

from hoglab.storage.database import DatabaseError
from hoglab.storage.database.errors import explain
from hoglab.storage.event_log import EventLogFullError, Offset

if TYPE_CHECKING:
    from collections.abc import Sequence

RETRY_DISK_S = 30
"""Value of ``Retry-After`` when records are refused because of the disk."""

_log = structlog.get_logger(__name__)


class CommitWaiter(Protocol):
    """Caller that waits for a commit."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def future(self) -> asyncio.Future[Offset]: ...


@dataclass(slots=True, eq=False)
class Waiter:
    """An append that waits for its commit."""

    payload: bytes
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Offset]
    owner: int | None
    alone: bool


def wake(offsets: Sequence[tuple[Offset, CommitWaiter]], error: Exception | None) -> None:
    """Tell each waiter its offset or the error, with one call into each event loop."""
    futures_by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Offset], Offset]]] = {}
    for offset, waiter in offsets:
        futures_by_loop.setdefault(waiter.loop, []).append((waiter.future, offset))
    for loop, futures in futures_by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, futures, error)
        except RuntimeError:  # the loop was closed: nobody is left to hear it
            _log.info("event_log_waiters_gone", records=len(futures))


def _resolve(futures: list[tuple[asyncio.Future[Offset], Offset]], error: Exception | None) -> None:
    for future, offset in futures:
        if future.done():  # its caller was cancelled
            continue
        if error is None:
            future.set_result(offset)
        else:
            future.set_exception(_refusal(error))


def _refusal(error: Exception) -> Exception:
    """Return the error for one waiter: a failing disk is a reason to come back later, not to fail for good."""
    if isinstance(error, EventLogFullError):
        return EventLogFullError(str(error), error.retry_after_s)
    if isinstance(error, sqlite3.Error | DatabaseError | OSError):
        known = explain(error, "the event log")
        return EventLogFullError(str(known or f"the event log cannot be written: {error}"), RETRY_DISK_S)
    return error
