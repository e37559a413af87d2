"""Work on the past that goes on in the background: backfills, and running past invocations again.

Each is a row with the place that it has reached, so that it can be watched, stopped, and gone on with by another
process.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


class JobKind(Enum):
    """Kind of a job: on stored events, or on past invocations."""

    BACKFILL = "backfill"
    RERUN = "rerun"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """A job, and how far it came.

    ``selection``: which past invocations are run again; None: it is about stored events. ``cursor`` is the place that
    was reached, ``last_seq`` the one where it ends: in the order of ingestion, or as a time in microseconds. Of
    ``total`` events or invocations (at most ``max_events``) it has ``seen`` some, and ``queued`` some as invocations;
    ``already_run`` counts events that had been run before, ``dead_letters`` events that became dead letters.
    """

    id: str
    project_id: int
    function_id: str
    status: str
    dry_run: bool
    since: datetime
    until: datetime
    max_events: int | None = None
    selection: Mapping[str, Any] | None = None
    cursor: int
    last_seq: int
    total: int
    seen: int = 0
    queued: int = 0
    already_run: int = 0
    dead_letters: int = 0
    error: str | None = None
    created_at: datetime
    finished_at: datetime | None = None

    @property
    def kind(self) -> JobKind:
        """Kind of the job."""
        return JobKind.BACKFILL if self.selection is None else JobKind.RERUN


@dataclass(frozen=True, slots=True)
class JobStep:
    """Step of a backfill with what it enqueues: from one place in the order of ingestion to another."""

    id: str
    before: int
    cursor: int
    seen: int = 0
    already_run: int = 0
    dead_letters: int = 0


class JobOverError(Exception):
    """A backfill was cancelled, or came to its step before: nothing was enqueued."""


class JobRunsError(Exception):
    """The function has one of the kind that is not over."""
