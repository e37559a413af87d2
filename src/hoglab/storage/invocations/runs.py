"""Traces of runs: log lines, hourly metrics and results, each for a limited time (spec: hog-runtime 4.10)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


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


class RunWriter(Protocol):
    """Writer of log lines and metrics outside of any turn. From any thread."""

    def write_logs(self, logs: Sequence[LogEntry]) -> None: ...

    def write_metrics(self, metrics: Sequence[AppMetric]) -> None: ...


class RunStore(RunWriter, Protocol):
    """Store of logs, metrics and results of runs. Blocking methods, from any thread; they raise `DatabaseError`.

    The queue writes most of it, in the transactions of its own (`InvocationQueue.finish`).
    """

    def logs(self, project_id: int, source_id: str, wanted: LogQuery) -> list[LogLine]:
        """Return the newest matching lines of one function, newest first."""
        ...

    def last_log_id(self) -> int:
        """Return the id of the newest line, 0 without any. Lines that come later have higher ids."""
        ...

    def new_logs(self, source_ids: Collection[str], after: int, until: int, limit: int) -> list[LogLine]:
        """Return lines of functions with ids above ``after`` and up to ``until``, oldest first."""
        ...

    def last_errors(self, source_ids: Collection[str], among: int) -> dict[str, LogLine]:
        """Return the last error in each function's log, as far as it is among its newest ``among`` lines."""
        ...

    def hourly_counts(self, project_id: int, source_id: str, wanted: HourQuery) -> list[HourlyCount]:
        """Return the counts of a function's metrics, by the hour."""
        ...

    def counts(
        self, project_id: int, names: Collection[str], since: datetime
    ) -> Mapping[tuple[str, str], int]:
        """Return counts of metrics in the hours since, by function and name."""
        ...

    def results(
        self, project_id: int, function_id: str, statuses: Collection[str] | None, limit: int
    ) -> list[InvocationResult]:
        """Return results of a function, those that were due last first."""
        ...

    def next_attempts(self, ids: Collection[str]) -> dict[str, datetime]:
        """Return times of the next attempts of those invocations that wait."""
        ...

    def last_version(self) -> int:
        """Return the highest version of a result, 0 without any."""
        ...

    def repeatable(self, wanted: ResultSelection, limit: int | None) -> tuple[int, int]:
        """Return the number of matching results, the oldest up to ``limit``; and how many of these can be run again."""
        ...

    def extent(self, wanted: ResultSelection) -> tuple[int, datetime | None]:
        """Return the number of matching results, and the time when the last of them was due."""
        ...

    def page(
        self, wanted: ResultSelection, after: datetime, last: datetime, *, size: int, limit: int | None
    ) -> tuple[list[InvocationResult], datetime]:
        """Return results due after a moment and up to ``last``, oldest first, and the moment up to which these are all.

        About ``size`` of them: all that were due at the same moment are on one page, but for what exceeds ``limit``.
        """
        ...
