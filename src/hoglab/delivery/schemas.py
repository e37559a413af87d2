"""What the endpoints of delivery take and answer (spec: hog-functions-api 14, 16, 17)."""

from datetime import datetime
from typing import Annotated, Any

from hoglab.http.fields import Bool, Int, JsonList, JsonObject, Moment, Text, WireModel

MAX_LOG_LINES = 500
DEFAULT_LOG_LINES = 50


class LogsQuery(WireModel):
    """Which lines of the log are wanted."""

    limit: Annotated[int, Int(1, MAX_LOG_LINES)] = DEFAULT_LOG_LINES
    offset: Annotated[int, Int(0)] = 0
    after: Annotated[datetime, Moment()] | None = None
    before: Annotated[datetime, Moment()] | None = None
    level: Annotated[str, Text(blank=True)] | None = None
    search: Annotated[str, Text(blank=True)] | None = None
    instance_id: Annotated[str, Text(blank=True)] | None = None


class LogLineOut(WireModel):
    """One line of the log."""

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


class MetricsQuery(WireModel):
    """Which metrics are wanted."""

    after: str = "-7d"
    before: str | None = None
    interval: str = "day"
    name: str | None = None
    kind: str | None = None
    breakdown_by: str = "kind"
    instance_id: str | None = None


class SeriesOut(WireModel):
    """One line of a chart: a value for each label."""

    name: str
    values: list[int]


class MetricsOut(WireModel):
    """Metrics over time."""

    labels: list[str]
    series: list[SeriesOut]


class TotalsOut(WireModel):
    """Metrics added up."""

    totals: dict[str, int]


class TestRunBody(WireModel):
    """A configuration to try, and the event to try it on."""

    __test__ = False

    configuration: Annotated[dict[str, Any], JsonObject()] | None = None
    globals: Annotated[dict[str, Any], JsonObject()] | None = None
    clickhouse_event: Annotated[dict[str, Any], JsonObject()] | None = None
    mock_async_functions: Annotated[bool, Bool()] = True
    invocation_id: Any = None
    use_draft: Annotated[bool, Bool()] = False


class TestRunOut(WireModel):
    """What became of a test run."""

    __test__ = False

    result: Any
    status: str
    errors: list[str]
    logs: list[dict[str, str]]


class StatusBody(WireModel):
    """A state to set by hand."""

    state: Any = None


class StatusOut(WireModel):
    """How a function fares."""

    state: int
    tokens: int


class BroadcastOut(WireModel):
    """A broadcast was begun."""

    success: bool


class RerunSelection(WireModel):
    """Which past invocations to run again."""

    window_start: Annotated[datetime, Moment()] | None = None
    window_end: Annotated[datetime, Moment()] | None = None
    status: Annotated[list[str], JsonList()] | None = None
    error_kind: Annotated[list[str], JsonList()] | None = None
    error_message_contains: Annotated[str, Text(max_length=200, blank=True)] | None = None
    max_attempts: Annotated[int, Int(1, 255)] | None = None
    max_count: Annotated[int, Int(1, 10_000)] | None = None
    invocation_ids: Annotated[list[str], JsonList()] | None = None


class RerunBody(WireModel):
    """A request to run past invocations again."""

    filter: RerunSelection = RerunSelection()


class RerunOut(WireModel):
    """What was started."""

    rerun_job_id: str
    queued_count: int
    skipped_count: int
