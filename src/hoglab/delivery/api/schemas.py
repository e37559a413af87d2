"""Shapes of the endpoints of delivery (spec: hog-functions-api 14, 16, 17)."""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import model_validator

from hoglab.http.fields.fields import Bool, Int, JsonList, JsonObject, Moment, Text, WireModel, fail
from hoglab.http.fields.notes import Note, Notes

MAX_LOG_LINES = 500
DEFAULT_LOG_LINES = 50


NOTES: Notes = {
    "success": Note("Always true.", True),
    "log_source_id": "The id of the function.",
    "instance_id": "The id of one invocation.",
    "timestamp": Note("Time in UTC.", "2026-01-02T03:04:05.678901Z"),
    "level": Note("`DEBUG`, `LOG`, `INFO`, `WARN` or `ERROR`; in a query several, joined by commas.", "INFO"),
    "message": Note("The line.", "Function completed in 12ms."),
    "after": "Only what came after this: a moment, or a time ago like `-7d`.",
    "before": "Only what came before this: a moment, or a time ago like `-1h`.",
    "interval": Note("The width of one value: `hour`, `day` or `week`.", "day"),
    "name": "The name of the metric.",
    "kind": "The kind of the metric: `success`, `failure`, `other`, ….",
    "breakdown_by": Note("Grouping of the series: by `kind` or `name`.", "kind"),
    "labels": Note("The moments that the values are for.", ["2026-01-02T00:00:00"]),
    "series": Note("A line for each kind or name.", [{"name": "success", "values": [3]}]),
    "values": "A value for each label.",
    "totals": Note("A value for each kind or name.", {"success": 3}),
    "configuration": "The function, as for create; in answers its errors, by field.",
    "globals": "Globals of the program: `event`, `person`, `groups`, `project`.",
    "clickhouse_event": "The event as stored, in place of `globals`.",
    "mock_async_functions": "Whether to log requests to the outside instead of sending them.",
    "invocation_id": "An id for the run; one is made up without it.",
    "use_draft": "Try the stored draft instead of a configuration.",
    "result": "Value that the program returned.",
    "status": Note("Status of the run: `success`, `error` or `skipped`.", "success"),
    "errors": Note("Errors.", []),
    "logs": Note("Lines that the program printed, and messages of the server.", []),
    "state": Note("1 healthy, 2 slowed down, 3 stopped, 11 and 12 the latter two by hand.", 1),
    "tokens": "Remaining budget of failures.",
    "filter": "Selection of the runs; by default the failed ones of the last 30 days.",
    "window_start": "Only those that began then or later.",
    "window_end": "Only those that began before; at most 30 days after the start.",
    "error_kind": "Only those that failed in these ways.",
    "error_message_contains": "Only those whose error contains this text.",
    "max_attempts": "Only those with at most this number of attempts.",
    "max_count": "Maximum number of runs, the oldest first; null for all.",
    "invocation_ids": "Only these.",
    "dry_run": "Only say how many would run again.",
    "rerun_job_id": Note(
        "Identifies what was started; empty for a dry run.", "018f6c1e-7b0a-7000-8000-3f0c9a5b1d22"
    ),
    "queued_count": "Number of runs that were enqueued so far, or would be.",
    "skipped_count": "Number of runs left out so far: they are running, or their event is gone.",
    "matches": "Whether the event passes.",
    "stored": "Whether it is an event of the project; else it is made up.",
    "filters": "The verdict of the function's own filters.",
    "mappings": "The verdict of each mapping; null for a function without.",
    "disabled": "Whether the mapping is left out.",
    "value": "Value of the filter.",
    "note": "Further note on the evaluation.",
    "term": "The filter term by term, each with its verdict.",
}


class TailQuery(WireModel):
    """Filter for new log lines."""

    notes = NOTES

    level: Annotated[str, Text(blank=True)] | None = None
    search: Annotated[str, Text(blank=True)] | None = None
    instance_id: Annotated[str, Text(blank=True)] | None = None


class LogsQuery(TailQuery):
    """Filter for log lines."""

    limit: Annotated[int, Int(1, MAX_LOG_LINES)] = DEFAULT_LOG_LINES
    offset: Annotated[int, Int(0)] = 0
    after: Annotated[datetime, Moment()] | None = None
    before: Annotated[datetime, Moment()] | None = None


MAX_RUNS = 500
RUN_STATUSES = ("running", "succeeded", "failed", "cancelled")

RUN_NOTES: Notes = {
    "id": "The id of the function, or of the run.",
    "succeeded": Note("Runs that ended well.", 12),
    "failed": Note("Runs that did not, and events that could not become one.", 0),
    "unfinished": Note("Runs that wait or are at work.", 1),
    "destination_away": "Whether its runs are held back because all attempts fail.",
    "last_error": "The last error in its log; null when it is long ago.",
    "status": Note(
        "`running` (or waiting), `succeeded`, `failed` or `cancelled`; in a query several.", "running"
    ),
    "limit": Note("Maximum number of runs.", 50),
    "event_uuid": "The event that it is for.",
    "distinct_id": "Distinct id of the event.",
    "queued_at": "Time when the run was first enqueued.",
    "finished_at": "End time; null before.",
    "next_attempt_at": "Time of the next attempt; null when the run is over or at work.",
    "error_kind": Note("Kind of the error; empty for none.", "http_5xx"),
    "error": "Error of the run, or of its last attempt.",
}


class LogLineOut(WireModel):
    """One line of the log."""

    notes = NOTES

    log_source_id: str
    instance_id: str
    timestamp: datetime
    level: str
    message: str


class LogPage(WireModel):
    """Lines, newest first."""

    count: int
    next: str | None
    previous: str | None
    results: list[LogLineOut]


class LastErrorOut(WireModel):
    """An error of a function's log."""

    notes = NOTES

    message: str
    timestamp: datetime


class FunctionHealthOut(WireModel):
    """Health of a function in the last 24 hours."""

    notes = RUN_NOTES

    id: str
    succeeded: int
    failed: int
    unfinished: int
    destination_away: bool
    last_error: LastErrorOut | None


class RunsQuery(WireModel):
    """Filter for runs."""

    notes = RUN_NOTES

    status: str | None = None
    limit: Annotated[int, Int(1, MAX_RUNS)] = 50


class RunOut(WireModel):
    """One run of a function."""

    notes = RUN_NOTES

    id: str
    status: str
    event_uuid: str | None
    distinct_id: str | None
    queued_at: datetime | None
    finished_at: datetime | None
    next_attempt_at: datetime | None
    error_kind: str
    error: str | None


class RunPage(WireModel):
    """Runs, newest first."""

    notes = RUN_NOTES

    count: int
    next: str | None
    previous: str | None
    results: list[RunOut]


class MetricsQuery(WireModel):
    """Filter and grouping of metrics."""

    notes = NOTES

    after: str = "-7d"
    before: str | None = None
    interval: str = "day"
    name: str | None = None
    kind: str | None = None
    breakdown_by: str = "kind"
    instance_id: str | None = None


class SeriesOut(WireModel):
    """One line of a chart: a value for each label."""

    notes = NOTES

    name: str
    values: list[int]


class MetricsOut(WireModel):
    """Metrics over time."""

    notes = NOTES

    labels: list[str]
    series: list[SeriesOut]


class TotalsOut(WireModel):
    """Totals of metrics."""

    notes = NOTES

    totals: dict[str, int]


class TestRunBody(WireModel):
    """A configuration to test, and the event to test it on."""

    notes = NOTES
    __test__ = False

    configuration: Annotated[dict[str, Any], JsonObject()] | None = None
    globals: Annotated[dict[str, Any], JsonObject()] | None = None
    clickhouse_event: Annotated[dict[str, Any], JsonObject()] | None = None
    mock_async_functions: Annotated[bool, Bool()] = True
    invocation_id: Any = None
    use_draft: Annotated[bool, Bool()] = False


class TestRunOut(WireModel):
    """Result of a test run."""

    notes = NOTES
    __test__ = False

    result: Any
    status: str
    errors: list[str]
    logs: list[dict[str, str]]


class StatusBody(WireModel):
    """A state to set by hand."""

    notes = NOTES

    state: Any = None


class BroadcastOut(WireModel):
    """Result of starting a broadcast."""

    notes = NOTES

    success: bool


class RerunSelection(WireModel):
    """Selection of past invocations to run again.

    Unknown fields are refused, since ignoring them would widen the selection. `after` and `before` stand for
    `window_start` and `window_end`.
    """

    synonyms: ClassVar[dict[str, str]] = {"after": "window_start", "before": "window_end"}
    notes = {**NOTES, "status": "Only those that ended so: `failed`, `succeeded`, …."}  # noqa: RUF012

    window_start: Annotated[datetime, Moment()] | None = None
    window_end: Annotated[datetime, Moment()] | None = None
    status: Annotated[list[str], JsonList()] | None = None
    error_kind: Annotated[list[str], JsonList()] | None = None
    error_message_contains: Annotated[str, Text(max_length=200, blank=True)] | None = None
    max_attempts: Annotated[int, Int(1, 255)] | None = None
    max_count: Annotated[int, Int(1, 2**31 - 1)] | None = None
    invocation_ids: Annotated[list[str], JsonList()] | None = None

    @model_validator(mode="before")
    @classmethod
    def _known(cls, sent: Any) -> Any:
        if not isinstance(sent, dict):
            return sent
        named = {cls.synonyms.get(name, name): value for name, value in sent.items()}
        for name in named:
            if name not in cls.model_fields:
                raise fail("invalid_input", f"'{name}' is not known. Nothing was run again.")
        return named


class RerunBody(WireModel):
    """A request to run past invocations again."""

    notes = NOTES

    filter: RerunSelection = RerunSelection()
    dry_run: Annotated[bool, Bool()] = False


class RerunOut(WireModel):
    """Job that was started, and how many invocations it covers."""

    notes = NOTES

    rerun_job_id: str
    queued_count: int
    skipped_count: int


class SampleBody(WireModel):
    """Configuration for which a sample event is requested."""

    notes = NOTES

    configuration: Annotated[dict[str, Any], JsonObject()] | None = None


class SampleOut(WireModel):
    """Globals of a sample event for a test run."""

    notes = NOTES

    globals: dict[str, Any]
    stored: bool
    matches: bool


class ExplainBody(WireModel):
    """An event, and filters to use instead of the stored ones."""

    notes = NOTES

    configuration: Annotated[dict[str, Any], JsonObject()] | None = None
    globals: Annotated[dict[str, Any], JsonObject()] | None = None
    clickhouse_event: Annotated[dict[str, Any], JsonObject()] | None = None


class ExplainedFilterOut(WireModel):
    """The verdict of one filter and its terms (nested: ``all``, ``any`` and ``not`` of further terms)."""

    notes = NOTES

    matches: bool
    value: Any
    error: str | None
    note: str | None
    term: dict[str, Any] | None


class ExplainedMappingOut(WireModel):
    """One mapping of the function."""

    notes = NOTES

    name: str | None
    disabled: bool
    filters: ExplainedFilterOut


class ExplainOut(WireModel):
    """``matches``: whether the event would start a run."""

    notes = NOTES

    matches: bool
    filters: ExplainedFilterOut
    mappings: list[ExplainedMappingOut] | None


class RefusedRerunOut(WireModel):
    """The reason why nothing was started."""

    notes = NOTES

    queued_count: int
    skipped_count: int
    detail: str


class RefusedTestOut(WireModel):
    """Reasons for which a test run did not start: errors of the configuration by field, or other errors."""

    notes = {**NOTES, "status": "`error`, where the configuration was right."}  # noqa: RUF012

    configuration: dict[str, Any] | None = None
    status: Literal["error"] | None = None
    errors: list[str] | None = None
