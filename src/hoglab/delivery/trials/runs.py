"""Testing a configuration on an event, with nothing stored (spec: hog-functions-api 14, hog-runtime 7.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID, uuid4

import orjson

from hoglab.delivery.bodies.child import Work
from hoglab.delivery.bodies.protocol import json_of
from hoglab.delivery.execution import EventFacts, PendingCall, ProgramRun
from hoglab.delivery.execution.answers import failure_text, for_program, is_failure
from hoglab.delivery.execution.batch_run import failures
from hoglab.delivery.execution.calls import SENDING, sent_by
from hoglab.delivery.outbound import Email, FetchFailure, FetchRequest, MailFailure
from hoglab.delivery.runs.globals import milliseconds
from hoglab.fairness.compute_shares import ComputeShares
from hoglab.filters.hog import FilterFailure
from hoglab.functions.runtime import (
    CompiledFunction,
    CompiledMapping,
    FunctionRegistry,
    FunctionSet,
    ProjectFunctions,
    filter_globals,
)
from hoglab.functions.runtime.transformations import FAILED, SKIPPED, SUCCEEDED, Supervision, Transformations
from hoglab.hog import HogLimit, HogRuntimeError, HogThrow, from_json, to_json
from hoglab.hog.values import stringify
from hoglab.http.fields.dates import parse_moment

if TYPE_CHECKING:
    from hoglab.delivery.execution.answers import Answer
    from hoglab.delivery.service import Delivery
    from hoglab.functions.secrets import Redact
    from hoglab.http.identity import Project
    from hoglab.storage.invocations import AppMetric, LogEntry

NOT_MATCHING = "Mapping trigger not matching filters was ignored."


class MissingEventError(ValueError):
    """A test run was requested without an event."""


@dataclass(slots=True)
class TrialReport:
    """Report of a test run. ``status``: success, error or skipped."""

    result: Any = None
    errors: list[str] = field(default_factory=list)
    logs: list[dict[str, str]] = field(default_factory=list)
    runs: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Requests that were not sent."""
    responses: list[Mapping[str, Any]] = field(default_factory=list)
    """Responses to the requests, in turn; further ones get an empty 200."""

    def log(self, level: str, text: str, at: datetime) -> None:
        self.logs.append({"level": level, "timestamp": milliseconds(at), "message": text})

    hide: Redact = str
    """Function that removes the secrets from a text of the result."""

    def answer(self) -> dict[str, Any]:
        """Return the report in the form of the API."""
        status = "error" if self.errors else "success" if self.runs else "skipped"
        result = _hidden(self.result, self.hide)
        return {"result": result, "status": status, "errors": self.errors, "logs": self.logs}


class TestRuns:
    """Runs configurations as the worker would, but at once and without storing anything."""

    __test__ = False  # the name is the domain's, and no test class

    def __init__(self, delivery: Delivery) -> None:
        self.limits = delivery.registry.limits
        """Limits of filters and inputs."""
        self._delivery = delivery
        self._event_globals = delivery.context.new_event_globals()

    def run(
        self,
        project: Project,
        function: CompiledFunction,
        globals_: dict[str, Any],
        *,
        run_id: str,
        mock: bool,
        responses: Sequence[Mapping[str, Any]] = (),
    ) -> TrialReport:
        """Run ``function`` on complete globals (see `globals_of`). ``responses`` answer mocked requests."""
        if function.type == "transformation":
            return self._transform(project, function, globals_)
        report = TrialReport(responses=list(responses))
        now = self._delivery.now
        flat = filter_globals(globals_)
        for mapping in self._mappings(function, flat, report):
            report.runs += 1
            values: dict[str, Any] = from_json({**globals_, "source": self._delivery.site.source(function)})
            if values.get("person") is None:
                values["person"] = self._event_globals.late_person(project, values["event"]["distinct_id"])
            try:
                values["inputs"] = function.build_inputs(values, mapping)
            except (HogRuntimeError, HogThrow, HogLimit) as error:
                text = f"Error building inputs: {function.input_failure(error)}"
                report.errors.append(text)
                report.log("error", text, now())
                continue
            self._execute(function, mapping, values, report, run_id=run_id, mock=mock)
        return report

    # --- filters

    def _mappings(
        self, function: CompiledFunction, flat: dict[str, Any], report: TrialReport
    ) -> list[CompiledMapping | None]:
        """Return the runs that the event causes: one None for a function without mappings."""
        if not self._matches(function.filter, flat, report):
            return []
        if function.mappings is None:
            return [None]
        return [mapping for mapping in function.mappings if self._matches(mapping.filter, flat, report)]

    def _matches(self, compiled: Any, flat: dict[str, Any], report: TrialReport) -> bool:
        now = self._delivery.now()
        try:
            if compiled.matches(flat):
                return True
            value = compiled.value(flat)
        except FilterFailure as failure:
            text = f"Error filtering event {flat['uuid']}: {failure}"
            report.errors.append(text)
            report.log("error", text, now)
            return False
        if not isinstance(value, bool):
            report.log("warn", f"Filter returned a non-boolean value: {_type_name(value)}", now)
        report.log("info", NOT_MATCHING, now)
        return False

    # --- destinations

    def _execute(
        self,
        function: CompiledFunction,
        mapping: CompiledMapping | None,
        values: dict[str, Any],
        report: TrialReport,
        *,
        run_id: str,
        mock: bool,
    ) -> None:
        shown = to_json(values)
        event = shown["event"]
        is_batch = function.delivery.batch is not None
        if is_batch:
            shown["events"] = [{name: shown.get(name) for name in ("event", "person", "groups", "inputs")}]
        run = ProgramRun(
            Work(run_id, function.id, function.hog, json_of(shown), b"{}"),
            EventFacts(str(event["uuid"]), str(event["distinct_id"]), event.get("url")),
            function.redactor(values["inputs"], mapping),
            self._delivery.now,
            timings=[],
        )
        compute = self._delivery.bodies.compute
        call = run.take(compute(run.start()))
        while call is not None:
            if call.name == "sleep":
                answer = None
            elif call.name not in SENDING:
                run.fail(f"Unknown async function '{call.name}'")
                break
            elif mock:
                self._log_mocked(run, call)
                answer = _mocked(call, report)
            else:
                answer = self._perform(run, call, report, run_id, function.project_id)
            call = run.take(compute(run.resume(answer)))
        if run.refused is not None:
            report.errors.append(run.refused)
            return
        if run.captured is not None:
            run.log("info", f"postHogCapture was called with {stringify(run.captured, 2)}")
        if run.error is None and is_batch:
            run.error = _batch_error(run)
        if run.error is not None:
            run.log_error(run.error)
            report.errors.append(run.error)
        else:
            run.log_completion()
        for line in run.lines:
            report.log(line.level, line.text, line.at)

    def _log_mocked(self, run: ProgramRun, call: PendingCall) -> None:
        first = call.args[0] if call.args else None
        if call.name == "fetch":
            options = call.args[1] if len(call.args) > 1 else {}
            shown = f"'{first}', {stringify(options, 2)}"
        else:
            shown = stringify(first, 2)
        run.log("info", f"Async function '{call.name}' was mocked with arguments:")
        run.log("info", f"{call.name}({shown})")

    def _perform(
        self, run: ProgramRun, call: PendingCall, report: TrialReport, run_id: str, project_id: int
    ) -> dict[str, Any]:
        """Perform one real attempt and return the result."""
        request = sent_by(call, f"{run_id}-{run.calls_made}", self._delivery.context.outbound.mailer.limits)
        answer: Answer
        if isinstance(request, FetchFailure | MailFailure):
            answer = request
        else:
            answer = asyncio.run(_send(self._delivery, request, project_id))
        if is_failure(answer):
            text = failure_text(answer, 1)
            run.log("error", text)
            report.errors.append(run.cleaned(text))
        return for_program(answer)

    # --- transformations

    def _transform(
        self, project: Project, function: CompiledFunction, globals_: dict[str, Any]
    ) -> TrialReport:
        report = TrialReport()
        metrics: list[AppMetric] = []
        logs: list[LogEntry] = []

        def record(new_metrics: Any, new_logs: Any) -> None:
            metrics.extend(new_metrics)
            logs.extend(new_logs)

        registry = cast("FunctionRegistry", _Only(project, function))
        transformations = Transformations(
            registry,
            self._delivery.trying_transformations,
            Supervision(record, _never, _never, lambda _function_id, _ms: None),
            ComputeShares(),
            site_url=self._delivery.site.url,
            now=self._delivery.now,
        )
        event = _TestEvent.of(globals_["event"])
        kept = transformations.transform(project.id, [event])
        names = {metric.metric_name for metric in metrics}
        for line in logs:
            report.log(line.level, line.message, line.timestamp)
            if line.level == "error":
                report.errors.append(line.message)
        if "filtered" in names:
            report.log("info", NOT_MATCHING, self._delivery.now())
        report.runs = int("succeeded" in names or "failed" in names)
        if kept and not report.errors:
            properties = {
                name: value
                for name, value in event.properties.items()
                if name not in (SUCCEEDED, FAILED, SKIPPED)
            }
            report.result = {
                **globals_["event"],
                "event": event.event,
                "distinct_id": event.distinct_id,
                "properties": properties,
            }
            report.hide = function.redact_stored
        return report

    # --- globals

    def globals_of(
        self, project: Project, sent: Mapping[str, Any] | None, row: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Return complete globals from those of a request, or from an event row, which wins.

        Raises `MissingEventError`.
        """
        if row:
            globals_ = self._from_row(project, row)
        else:
            globals_ = dict(sent or {})
            if not isinstance(globals_.get("event"), dict):
                raise MissingEventError
            globals_["event"] = self._completed(globals_["event"])
        site = self._delivery.site
        given = (sent or {}).get("project")
        globals_["project"] = {**site.project(project), **(given if isinstance(given, dict) else {})}
        if not isinstance(globals_.get("groups"), dict):
            globals_["groups"] = {}
        person = globals_.get("person")
        if isinstance(person, dict):
            globals_["person"] = {"id": "", "name": "", "url": "", "properties": {}, **person}
        else:
            globals_.pop("person", None)
        return globals_

    def _completed(self, event: Mapping[str, Any]) -> dict[str, Any]:
        properties = event.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        return {
            "uuid": str(uuid4()),
            "event": "",
            "distinct_id": "",
            "timestamp": milliseconds(self._delivery.now()),
            "elements_chain": properties.get("$elements_chain") or "",
            "url": "",
            **{name: value for name, value in event.items() if value is not None},
            "properties": properties,
        }

    def _from_row(self, project: Project, row: Mapping[str, Any]) -> dict[str, Any]:
        site = self._delivery.site
        properties = _json_object(row.get("properties"))
        uuid = str(row.get("uuid") or uuid4())
        distinct_id = str(row.get("distinct_id") or "")
        timestamp = _timestamp(row.get("timestamp"), self._delivery.now())
        globals_: dict[str, Any] = {
            "event": {
                "uuid": uuid,
                "event": str(row.get("event") or ""),
                "distinct_id": distinct_id,
                "properties": properties,
                "elements_chain": row.get("elements_chain") or properties.get("$elements_chain") or "",
                "timestamp": timestamp,
                "url": site.event_url(project.id, uuid, timestamp),
            },
            "groups": self._row_groups(project, properties.get("$groups")),
        }
        if row.get("person_id"):
            globals_["person"] = site.person(
                project, str(row["person_id"]), distinct_id, _json_object(row.get("person_properties"))
            )
        return globals_

    def _row_groups(self, project: Project, named: Any) -> dict[str, Any]:
        if not isinstance(named, dict):
            return {}
        types = self._delivery.people.group_types(project.id)
        keys = {index: named[name] for name, index in types.items() if isinstance(named.get(name), str)}
        return self._event_globals.groups_of(project.id, keys)


def _hidden(value: Any, hide: Redact) -> Any:
    """Return a JSON value without secrets in its texts."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, dict):
        return {hide(key): _hidden(part, hide) for key, part in value.items()}
    return [_hidden(part, hide) for part in value] if isinstance(value, list) else value


def _batch_error(run: ProgramRun) -> str | None:
    """Return the reason for which the one event of a batch failed, by the program's result; None when it did not."""
    try:
        reasons = failures(run.value, 1)
    except ValueError as error:
        return str(error)
    return run.cleaned(reasons[0]) if reasons else None


def _never(_function_id: str) -> bool:
    """Return False: a function is tested whatever its circuit breaker says."""
    return False


def _mocked(call: PendingCall, report: TrialReport) -> dict[str, Any]:
    """Return the answer to a call that is not sent; a request is recorded."""
    if call.name != "fetch":
        return {"success": True}
    args = call.args
    options = to_json(args[1]) if len(args) > 1 else {}
    options = options if isinstance(options, dict) else {}
    report.requests.append(
        {
            "url": to_json(args[0]) if args else None,
            "method": options.get("method") or "GET",
            "headers": options.get("headers") or {},
            "body": options.get("body"),
        }
    )
    answer = report.responses.pop(0) if report.responses else {}
    return {"status": 200, "body": {}, **answer}


async def _send(delivery: Delivery, request: FetchRequest | Email, project_id: int) -> Answer:
    outbound = delivery.context.outbound
    if isinstance(request, Email):
        return await outbound.mailer.send(request, project_id)
    fetcher = outbound.fetcher()
    try:
        return await fetcher.fetch(request)
    finally:
        await fetcher.close()


@dataclass(slots=True)
class _TestEvent:
    """An event as transformations see and change it."""

    event: str
    distinct_id: str
    properties: dict[str, Any]
    uuid: UUID
    timestamp: datetime

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> _TestEvent:
        try:
            uuid = UUID(str(event["uuid"]))
        except ValueError:
            uuid = uuid4()
        try:
            moment = parse_moment(str(event["timestamp"]))
        except ValueError:
            moment = datetime.now(UTC)
        return cls(str(event["event"]), str(event["distinct_id"]), dict(event["properties"]), uuid, moment)


@dataclass(slots=True)
class _Only:
    """A registry that knows one transformation of one project."""

    project: Project
    function: CompiledFunction

    def for_project(self, _project_id: int) -> ProjectFunctions:
        nothing = FunctionSet(())
        return ProjectFunctions(self.project, {}, nothing, nothing, FunctionSet([self.function]))


def _json_object(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            return {}
    return value if isinstance(value, dict) else {}


def _timestamp(value: Any, now: datetime) -> str:
    try:
        return milliseconds(parse_moment(str(value)))
    except ValueError:
        return milliseconds(now)


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    names = {str: "string", int: "number", float: "number", list: "array", dict: "object"}
    return names.get(type(value), type(value).__name__)
