"""The endpoints of hog functions that are about running them (spec: hog-functions-api 12, 14-17)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from hoglab.delivery.api.schemas import (
    BroadcastOut,
    ExplainBody,
    ExplainOut,
    LogPage,
    LogsQuery,
    MetricsOut,
    MetricsQuery,
    RefusedRerunOut,
    RefusedTestOut,
    RerunBody,
    RerunOut,
    StatusBody,
    TailQuery,
    TestRunBody,
    TestRunOut,
    TotalsOut,
)
from hoglab.delivery.dispatch import explain_configuration
from hoglab.delivery.limits.function_breaker import SETTABLE
from hoglab.delivery.replay import MAX_IDS, RerunFilter, dry_run, rerun
from hoglab.delivery.replay.broadcast import broadcast
from hoglab.delivery.runs import LiveLogs, telemetry
from hoglab.delivery.runs.telemetry import MetricQuery
from hoglab.delivery.trials import MissingEventError, TestRuns
from hoglab.functions import store
from hoglab.functions.configuration import TESTED_TYPES, FunctionPatch
from hoglab.functions.configuration.schemas import StatusOut
from hoglab.functions.errors import InvalidFunctionError
from hoglab.functions.runtime import compile_configuration, filter_globals
from hoglab.functions.status import status_of
from hoglab.functions.templates import acknowledgements
from hoglab.hog import HogSourceError
from hoglab.http.errors import BareError, not_found, validation_error
from hoglab.http.fields.fields import parse_integer, parse_uuid
from hoglab.http.fields.wire import ErrorText
from hoglab.http.management.routing import ResourceRouter, TextId, UuidId
from hoglab.http.streams import EVENT_STREAM, Streams
from hoglab.storage.invocations import LogQuery

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.responses import Response

    from hoglab.delivery.service import Delivery
    from hoglab.filters.hog import FilterContext
    from hoglab.functions.configuration import Configuration
    from hoglab.functions.service import FunctionService
    from hoglab.http.management.call import Call
    from hoglab.storage.database import Database

READ, WRITE = "hog_function:read", "hog_function:write"

RERUNNABLE = frozenset({"destination", "internal_destination"})
MAX_WINDOW = timedelta(days=30)
INTERVALS = ("hour", "day", "week")
BREAKDOWNS = ("name", "kind")


def router(
    delivery: Delivery, functions: FunctionService, database: Database, streams: Streams | None = None
) -> ResourceRouter:
    """Return the endpoints below ``/hog_functions`` that need the runtime. ``database``: the metadata."""
    routes = ResourceRouter("/hog_functions", tag="hog_functions", scopes=(READ, WRITE))
    tests = TestRuns(delivery)
    live = LiveLogs(delivery.stores.runs)
    streams = streams or Streams()

    def known(call: Call, function_id: str) -> store.Row:
        with database.read() as connection:
            row = store.get(connection, call.project.id, function_id)
        if row is None or row["deleted"]:
            raise not_found()
        return row

    @routes.get("/{function_id}/logs/", query=LogsQuery, response=LogPage, heavy=True)
    def logs(call: Call, function_id: UuidId) -> dict[str, Any]:
        """List log lines of a function's runs, printed or reported by the server, newest first."""
        known(call, function_id)
        query = _log_query(call.validate_query(LogsQuery))
        kept = delivery.stores.runs.logs(call.project.id, function_id, query)
        lines = [telemetry.shown_line(line) for line in kept]
        return {"count": len(lines), "next": None, "previous": None, "results": lines}

    @routes.get(
        "/{function_id}/logs/tail/",
        query=TailQuery,
        response={"type": "string"},
        media_type=EVENT_STREAM,
        errors=(429,),
    )
    async def tail(call: Call, function_id: UuidId) -> Response:
        """Stream new lines of the log as they are written, as server-sent events, until the client disconnects.

        An event `log` holds one line as `GET …/logs/` shows it. A client that reads them too slowly gets an event
        `skipped` with the `count` of lines left out. With the header `Last-Event-ID`, lines after that one come
        first.
        """
        await asyncio.to_thread(known, call, function_id)
        wanted = call.validate_query(TailQuery)
        after = parse_integer(call.request.headers.get("last-event-id"))
        events = live.follow(call.project.id, function_id, _tail_query(wanted), after)
        return streams.response(events, call.holder)

    @routes.get("/{function_id}/metrics/totals/", query=MetricsQuery, response=TotalsOut, heavy=True)
    def totals(call: Call, function_id: UuidId) -> dict[str, Any]:
        """Read the totals of a function's metrics."""
        known(call, function_id)
        query = _metric_query(call, delivery.now(), series=False)
        return {"totals": telemetry.read_totals(delivery.stores.runs, call.project.id, function_id, query)}

    @routes.get("/{function_id}/metrics/", query=MetricsQuery, response=MetricsOut, heavy=True)
    def metrics(call: Call, function_id: UuidId) -> dict[str, Any]:
        """Read the time series of a function's metrics."""
        known(call, function_id)
        query = _metric_query(call, delivery.now(), series=True)
        return telemetry.read_series(delivery.stores.runs, call.project.id, function_id, query)

    @routes.post(
        "/{function_id}/invocations/",
        body=TestRunBody,
        response=TestRunOut,
        heavy=True,
        answers={400: RefusedTestOut},
    )
    def test_run(call: Call, function_id: TextId) -> dict[str, Any]:
        """Test a configuration on an event; nothing is stored. The id may be ``new``."""
        return _test_run(call, parse_uuid(function_id), tests, functions, database)

    @routes.post(
        "/{function_id}/explain/",
        scope=READ,
        body=ExplainBody,
        response=ExplainOut,
        heavy=True,
        answers={400: RefusedTestOut},
    )
    def explain(call: Call, function_id: TextId) -> dict[str, Any]:
        """Explain term by term whether a configuration's filters match an event.

        The id may be ``new``.
        """
        body = call.validate(ExplainBody)
        configuration, context = configured(
            call, parse_uuid(function_id), body.configuration, functions, database
        )
        try:
            globals_ = tests.globals_of(call.project, body.globals, body.clickhouse_event)
        except MissingEventError:
            raise _refused("Missing event") from None
        return explain_configuration(configuration, context, filter_globals(globals_))

    @routes.post(
        "/{function_id}/rerun/",
        scope=(WRITE, "person:read", "group:read"),
        body=RerunBody,
        response=RerunOut,
        heavy=True,
        answers={400: RefusedRerunOut},
    )
    def rerun_invocations(call: Call, function_id: UuidId) -> dict[str, Any]:
        """Run past invocations again, by default those of the last 30 days that failed.

        The first few hundred are queued before the answer, the rest in the background: `…/reruns/` shows the
        progress, and stops it.
        """
        row = known(call, function_id)
        body, wanted, shown = _rerun_asked(call, row)
        if body.dry_run:
            done = dry_run(delivery, call.project, function_id, wanted)
        else:
            done = rerun(delivery, call.project, function_id, wanted, shown)
        return {"rerun_job_id": done.job_id, "queued_count": done.queued, "skipped_count": done.skipped}

    @routes.post("/{function_id}/broadcast/", response=BroadcastOut, heavy=True, answers={400: ErrorText})
    def broadcast_function(call: Call, function_id: UuidId) -> dict[str, Any]:
        """Run a function once for every person that its filters match."""
        row = known(call, function_id)
        with database.read() as connection:
            context = store.filter_context(connection, call.project)
        broadcast(delivery, database, call.project, row, context)
        return {"success": True}

    @routes.get("/{function_id}/status/", response=StatusOut)
    def status(call: Call, function_id: UuidId) -> dict[str, int]:
        """Read the status of a function."""
        row = known(call, function_id)
        statuses = delivery.states.statuses([function_id])
        return dict(status_of(function_id, enabled=row["enabled"], known=statuses))

    @routes.patch(
        "/{function_id}/status/",
        body=StatusBody,
        response=StatusOut,
        answers={400: ErrorText, 404: ErrorText},
    )
    def set_status(call: Call, function_id: UuidId) -> dict[str, int]:
        """Slow a function down, stop it, or let it run again."""
        with database.read() as connection:
            row = store.get(connection, call.project.id, function_id)
        if row is None or row["deleted"]:
            raise BareError(404, {"error": "Hog function not found"})
        state = call.body.get("state")
        if not isinstance(state, int) or isinstance(state, bool) or state not in SETTABLE:
            raise BareError(400, {"error": "Invalid state"})
        delivery.function_breakers.force(function_id, state)
        return dict(delivery.states.statuses([function_id])[function_id])

    return routes


# --- logs and metrics


def _log_query(wanted: LogsQuery) -> LogQuery:
    return replace(
        _tail_query(wanted),
        limit=wanted.limit,
        offset=wanted.offset,
        after=wanted.after,
        before=wanted.before,
    )


def _tail_query(wanted: TailQuery) -> LogQuery:
    levels = _words(wanted.level)
    return LogQuery(
        levels=None if levels is None else [level.upper() for level in levels],
        search=wanted.search or None,
        instance_id=wanted.instance_id or None,
    )


def _words(text: str | None) -> list[str] | None:
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    return words or None


def _metric_query(call: Call, now: datetime, *, series: bool) -> MetricQuery:
    after = _moment(call.query("after") or "-7d", now, "after")
    before = now if not call.query("before") else _moment(call.query("before") or "", now, "before")
    interval = _choice(call, "interval", INTERVALS, "day")
    if series and telemetry.label_count(after, before, interval) > telemetry.MAX_LABELS:
        raise validation_error("The range is too long for this interval.", "after")
    return MetricQuery(
        after,
        before,
        interval=interval,
        breakdown=_choice(call, "breakdown_by", BREAKDOWNS, "kind"),
        names=_words(call.query("name")),
        kinds=_words(call.query("kind")),
        instance_id=(call.query("instance_id") or None) if series else None,
    )


def _moment(text: str, now: datetime, name: str) -> datetime:
    try:
        return telemetry.read_time(text, now)
    except ValueError:
        raise validation_error("Enter a date-time or a relative time such as -7d.", name) from None


def _choice(call: Call, name: str, choices: tuple[str, ...], default: str) -> str:
    value = call.query(name) or default
    if value not in choices:
        raise validation_error(f'"{value}" is not a valid choice.', name, "invalid_choice")
    return value


# --- running again


def _rerun_asked(call: Call, row: store.Row) -> tuple[RerunBody, RerunFilter, dict[str, Any]]:
    """Return the request, the filter of the invocations to run again, and the text about it for the log."""
    kind = row["type"] or "destination"
    if kind not in RERUNNABLE:
        detail = f"Re-runs aren't supported for '{kind}' functions."
        raise BareError(400, {"queued_count": 0, "skipped_count": 0, "detail": detail})
    if not row["enabled"]:
        detail = "This function is disabled. Enable it to re-run invocations."
        raise BareError(400, {"queued_count": 0, "skipped_count": 0, "detail": detail})
    body = call.validate(RerunBody)
    wanted = body.filter
    since, until = wanted.window_start, wanted.window_end
    if since is not None and until is not None:
        if until <= since:
            raise validation_error("'window_end' must be after 'window_start'.", "filter")
        if until - since > MAX_WINDOW:
            raise validation_error("Rerun window cannot exceed 30 days.", "filter")
    for name in ("status", "error_kind", "invocation_ids"):
        values = getattr(wanted, name) or []
        if len(values) > MAX_IDS or not all(isinstance(value, str) for value in values):
            raise validation_error("Not a valid list of texts.", f"filter__{name}")
    selection = RerunFilter(
        since=since,
        until=until,
        statuses=tuple(wanted.status or ("failed",)),
        error_kinds=None if wanted.error_kind is None else tuple(wanted.error_kind),
        message_part=wanted.error_message_contains or None,
        max_attempts=wanted.max_attempts,
        max_count=wanted.max_count,
        invocation_ids=None if wanted.invocation_ids is None else tuple(wanted.invocation_ids),
    )
    return body, selection, call.body.get("filter") or {}


# --- test runs


def _test_run(
    call: Call,
    function_id: str | None,
    tests: TestRuns,
    functions: FunctionService,
    database: Database,
) -> dict[str, Any]:
    body = call.validate(TestRunBody)
    if body.configuration is None and not body.use_draft:
        raise validation_error("Required unless use_draft is true.", "configuration")
    sent = body.configuration
    if sent is None and function_id is not None:
        sent = dict(functions.staged(call.project, function_id) or {})
    configuration, context = configured(call, function_id, sent, functions, database)
    try:
        function = compile_configuration(
            configuration,
            context,
            function_id=function_id or str(uuid4()),
            project_id=call.project.id,
            limits=tests.limits,
        )
    except HogSourceError as error:
        raise BareError(400, {"configuration": {"hog": [error.message]}}) from None
    try:
        globals_ = tests.globals_of(call.project, body.globals, body.clickhouse_event)
    except MissingEventError:
        raise _refused("Missing event") from None
    run_id = str(uuid4()) if body.invocation_id is None else parse_uuid(body.invocation_id)
    if run_id is None:
        raise _refused("Invalid invocation ID")
    if function.type not in TESTED_TYPES:
        raise _refused("Invalid function type")
    report = tests.run(
        call.project,
        function,
        globals_,
        run_id=run_id,
        mock=body.mock_async_functions,
        responses=acknowledgements(function.template_id),
    )
    return report.answer()


def configured(
    call: Call,
    function_id: str | None,
    sent: dict[str, Any] | None,
    functions: FunctionService,
    database: Database,
) -> tuple[Configuration, FilterContext]:
    """Return the configuration that a body would give a function, and the context of its filters. Raises 400."""
    try:
        configuration = functions.configure(call.project, FunctionPatch(sent or {}), function_id)
    except InvalidFunctionError as error:
        raise BareError(400, {"configuration": error.nested()}) from None
    with database.read() as connection:
        return configuration, store.filter_context(connection, call.project)


def _refused(message: str) -> BareError:
    return BareError(400, {"status": "error", "errors": [message]})
