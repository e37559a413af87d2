"""Dead letters: events that did not become invocations, kept to be tried again (spec: hog-runtime 4.10)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that did not become an invocation (spec: hog-runtime 4.10), with what it takes to try again.

    ``function_id`` None: it failed before any function was asked. ``id`` is the same for the same event, source
    and function: failing again counts an attempt.
    """

    id: str
    project_id: int
    function_id: str | None
    source: str
    step: str
    reason: str
    event_uuid: str
    event: str
    distinct_id: str
    payload: bytes  # opaque to the queue
    failed_at: datetime


@dataclass(frozen=True, slots=True)
class StoredDeadLetter(DeadLetter):
    """One as it is kept: how often it failed, and when for the first time; ``failed_at`` is the last time."""

    attempts: int
    first_failed_at: datetime


@dataclass(frozen=True, slots=True)
class DeadLetterSelection:
    """Selection of dead letters; None leaves a column unrestricted. ``until`` is exclusive.

    ``function_id``: those of one function, without those that failed before any function was asked.
    """

    function_id: str | None = None
    ids: Sequence[str] | None = None
    steps: Sequence[str] | None = None
    reason_part: str | None = None
    since: datetime | None = None
    until: datetime | None = None
