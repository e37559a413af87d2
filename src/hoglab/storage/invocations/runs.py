"""Traces of runs: log lines, hourly metrics and results, each for a limited time (spec: hog-runtime 4.10)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Collection


class LogEntry(Struct, frozen=True):
    project_id: int
    log_source_id: str
    instance_id: str
    timestamp: datetime
    level: str
    message: str
    log_source: str = "hog_function"


class AppMetric(Struct, frozen=True):
    project_id: int
    app_source_id: str
    metric_kind: str
    metric_name: str
    count: int
    timestamp: datetime
    instance_id: str = ""
    app_source: str = "hog_function"


ResultStatus = Literal["running", "succeeded", "failed", "cancelled"]


class InvocationResult(Struct, frozen=True):
    """Result of a run so far (spec: hog-runtime 4.10).

    Of two results of an invocation, the one with the larger ``version`` (microseconds, strictly increasing in a
    process) stays.
    """

    invocation_id: str
    project_id: int
    function_id: str
    status: ResultStatus
    attempts: int
    version: int
    is_retry: bool = False
    parent_run_id: str | None = None
    scheduled_at: datetime | None = None
    first_scheduled_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    duration_ms: int | None = None
    error_kind: str = ""
    error_message: str | None = None
    event_uuid: str | None = None
    distinct_id: str | None = None
    person_id: str | None = None
    invocation_globals: bytes | None = None


class LogLine(Struct, frozen=True):
    """A line of the log as it is kept. Ids grow in the order in which lines were written."""

    id: int
    project_id: int
    log_source_id: str
    instance_id: str
    timestamp: datetime
    level: str
    message: str


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Query for log lines; None leaves a column unrestricted."""

    limit: int = 50
    offset: int = 0
    after: datetime | None = None
    before: datetime | None = None
    levels: Collection[str] | None = None
    search: str | None = None
    instance_id: str | None = None

    def takes(self, line: LogLine) -> bool:
        """Return whether a line has what is wanted of its columns other than the time."""
        return (
            (self.levels is None or line.level.upper() in self.levels)
            and (not self.search or self.search.lower() in line.message.lower())
            and (self.instance_id is None or line.instance_id == self.instance_id)
        )


@dataclass(frozen=True, slots=True)
class HourQuery:
    """Query for counts of a function; None leaves a column unrestricted. Both ends of the range are inclusive.

    ``by_name``: counts of each name, not of each kind.
    """

    since: datetime
    until: datetime
    by_name: bool = False
    names: Collection[str] | None = None
    kinds: Collection[str] | None = None
    instance_id: str | None = None


class HourlyCount(NamedTuple):
    """Count of a metric in an hour. ``label``: the name or kind of the metric."""

    label: str
    hour: datetime
    number: int


@dataclass(frozen=True, slots=True)
class ResultSelection:
    """Selection of results of a function; None leaves a column unrestricted. ``until`` is exclusive.

    Those without a time at which they were due are never wanted.
    """

    project_id: int
    function_id: str
    statuses: Collection[str]
    error_kinds: Collection[str] | None = None
    message_part: str | None = None
    max_attempts: int | None = None
    invocation_ids: Collection[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
