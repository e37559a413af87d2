"""One turn of an invocation: from its stored state to the state that is stored next (spec: hog-runtime 4).

A turn does at most one request or e-mail, and its result is written before the next one: a program that asks for
another is put back with its journal. All of this is computing, of which bodies do theirs in processes of their own;
the worker performs the request and does the waiting.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
import structlog

from hoglab.delivery.bodies.child import Work
from hoglab.delivery.bodies.pool import Compute
from hoglab.delivery.bodies.protocol import json_of
from hoglab.delivery.execution.answers import (
    Answer,
    Postponed,
    failure_text,
    for_program,
    is_failure,
    metric_of,
    next_attempt_text,
    postponed_text,
)
from hoglab.delivery.execution.batch_run import MAPPING_GONE, BatchInputsError, BatchRun
from hoglab.delivery.execution.batches import item_of
from hoglab.delivery.execution.calls import SENDING, key_of, sent_by, sleep_seconds
from hoglab.delivery.execution.logins import REFUSED, is_login, key_of_login, mark_of
from hoglab.delivery.execution.loops import EndlessLoopError, marked
from hoglab.delivery.execution.program_run import (
    MAX_ERROR_CHARS,
    Line,
    PendingCall,
    ProgramRun,
    clipped,
    known_globals,
)
from hoglab.delivery.execution.retries import RetryPolicy, excused
from hoglab.delivery.execution.steps import Perform, RunContext, Step, TurnResult
from hoglab.delivery.outbound import FetchFailure, FetchRequest, FetchResponse, MailFailure
from hoglab.delivery.runs.results import INPUTS_FAILED, POISON_PILL, error_kind, kept_globals
from hoglab.delivery.runs.state import (
    NOTHING,
    InvalidStateError,
    RunState,
    Timing,
    decode_state,
    encode_state,
)
from hoglab.fairness.compute_quota import ComputeQuota
from hoglab.functions.secrets import Secrets, SecretsError
from hoglab.hog import HogLimit, HogRuntimeError, HogThrow, from_json, to_json
from hoglab.storage.database.types import from_micros, to_micros
from hoglab.storage.invocations import (
    AppMetric,
    FinalStatus,
    InvocationOutcome,
    InvocationResult,
    LogEntry,
    ResultStatus,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hoglab.delivery.bodies.child import SuspendedRun
    from hoglab.delivery.bodies.protocol import TurnOutcome
    from hoglab.functions.runtime import CompiledFunction, CompiledMapping
    from hoglab.functions.secrets import Redact
    from hoglab.http.identity import Project
    from hoglab.storage.invocations import ClaimedInvocation

_KINDS: Mapping[ResultStatus, tuple[str, str]] = {
    "succeeded": ("success", "succeeded"),
    "failed": ("failure", "failed"),
}

UNUSABLE = (
    "The function cannot be loaded; the log of the server says why. Once it can, this can be run again."
)

MAX_TIMINGS = 32
"""Maximum number of stored timings of a run: the last ones count, for its cost and its duration."""

MAX_PRIORITY = 9
"""Lowest urgency of a run; each attempt makes it less urgent."""

_logger = structlog.get_logger(__name__)


class Turn:
    """One claimed invocation at work. Call `begin` once, then `answered` when it returns `Perform`.

    Both are jobs of a `BodyPool`.
    """

    def __init__(self, context: RunContext, claimed: ClaimedInvocation) -> None:
        self.claimed = claimed
        self._context = context
        self._started_at = context.now()
        self._state: RunState | None = None
        self._function: CompiledFunction | None = None
        self._token = ""
        self._run: ProgramRun | None = None
        self._inputs: dict[str, Any] = {}
        self._asked: Perform | None = None
        self._lines: list[Line] = []
        self._calls: Counter[tuple[str, str]] = Counter()
        self._batch = BatchRun()
        self._quota = ComputeQuota()

    def accepted_at(self) -> datetime | None:
        """Return the time when the event was accepted.

        None except for the first request of a run that the event caused.
        """
        run, state = self._parts
        captured_at = run.event.captured_at
        if captured_at is None or self.claimed.parent_run_id is not None:
            return None
        is_first = all(timing.kind == "hog" for timing in state.timings)
        return datetime.fromisoformat(captured_at) if is_first else None

    @property
    def suspended(self) -> SuspendedRun | None:
        """The suspended program of the turn, while it is alive in its process."""
        return None if self._run is None else self._run.suspended

    @property
    def patience_s(self) -> float:
        """Time in seconds for which its requests are retried; 0 when the number of attempts limits them."""
        policy = self._retries()
        return 0.0 if policy.max_attempts is not None else policy.max_age_s or 0.0

    def begin(self) -> Step:
        """Run the program up to its request, or to its end."""
        try:
            return self._begin(may_perform=True)
        except Exception as error:
            return self._broken(error)

    def inline(self) -> Step:
        """Run the program to its end or up to its first call, which is left to a worker."""
        try:
            return self._begin(may_perform=False)
        except Exception as error:
            return self._broken(error)

    @property
    def program_run(self) -> ProgramRun | None:
        """The current program; None when it could not begin."""
        return self._run

    def answered(self, answer: Answer, duration_ms: float) -> Step:
        """Continue with the result of the request."""
        try:
            return self._answered(answer, duration_ms)
        except Exception as error:
            return self._broken(error)

    def poisoned(self) -> TurnResult:
        """Give up an invocation that lost its worker again and again."""
        message = "The invocation was given up: its worker ended unexpectedly each time it was run."
        self._note("error", message)
        try:
            self._state = decode_state(self.claimed.state)
            self._batch = BatchRun(self._state.items)
        except InvalidStateError:
            self._state = None
        return self._settle("failed", "failed", error=message, kind=POISON_PILL)

    # --- beginning

    def _begin(self, *, may_perform: bool) -> Step:
        claimed, context = self.claimed, self._context
        try:
            state = self._state = decode_state(claimed.state)
        except InvalidStateError as error:
            self._note("error", str(error))
            return self._settle("failed", "failed", error=str(error))
        self._batch = BatchRun(state.items)
        functions = context.registry.for_project(claimed.project_id)
        function = None if functions is None else functions.by_id.get(claimed.function_id)
        if functions is not None and claimed.function_id in functions.unusable:
            self._note("error", UNUSABLE)
            return self._settle("failed", "failed", error=UNUSABLE)
        if functions is None or function is None:
            self._note("info", "The function is disabled or deleted, so this run of it was cancelled.")
            return self._settle("cancelled", "cancelled")
        if all(map(function.lacks_mapping, state.mapping_ids())):
            self._note("info", f"{MAPPING_GONE} This run of it was cancelled.")
            return self._settle("cancelled", "cancelled")
        self._function = function
        self._token = functions.project.api_token
        try:
            is_batch = function.delivery.batch is not None or self._batch.is_one_of_many
            make = self._batch_run if is_batch else self._program_run
            run = self._run = make(function, functions.project, state)
        except BatchInputsError as error:
            self._note("error", str(error))
            return self._settle("failed", "failed", error=str(error), kind=INPUTS_FAILED)
        except (HogRuntimeError, HogLimit, HogThrow, SecretsError) as error:
            message = f"Error building inputs: {function.input_failure(error)}"
            self._note("error", message)
            return self._settle("failed", "failed", error=message, kind=INPUTS_FAILED)
        return self._compute(run.start(), may_perform=may_perform)

    def _program_run(self, function: CompiledFunction, project: Project, state: RunState) -> ProgramRun:
        """Return the program with its inputs: those it began with when it was suspended before, else new ones."""
        context, mapping = self._context, function.mapping_of(state.mapping_id)
        known = known_globals(state.globals)
        more: dict[str, Any] = {"source": context.site.source(function)}
        if not known.person:
            more["person"] = context.event_globals.late_person(project, known.event.distinct_id)
        if not known.groups:
            more["groups"] = {}
        if state.sealed_request is not None:
            more["request"] = orjson.loads(context.box.decrypt_text(state.sealed_request))
        redact: Redact | None = None
        source = function.hog
        if state.journal:
            inputs = self._pinned_inputs(state)
            source = function.hog if state.source is None else state.source
        elif mapping is None and function.has_fixed_inputs and "request" not in more:
            inputs, redact = function.fixed_inputs  # the event need not be decoded
        else:
            variables = from_json({**orjson.loads(memoryview(state.globals)), **more})
            inputs = self._build_inputs(function, variables, mapping)
        more["inputs"] = self._inputs = to_json(inputs)
        journal = bytes(state.journal) if state.journal else None
        return ProgramRun(
            Work(self.claimed.id, function.id, source, bytes(state.globals), json_of(more), journal),
            known.event,
            redact or function.redactor(inputs, mapping, more.get("request")),
            context.now,
            timings=state.timings,
        )

    def _batch_run(self, function: CompiledFunction, project: Project, state: RunState) -> ProgramRun:
        """Return the program on many events. Raises `BatchInputsError`."""
        run = self._batch.program(
            self._context,
            function,
            project,
            state,
            item_of(self.claimed, state),
            build_inputs=self._build_inputs,
            pinned=to_json(self._pinned_inputs(state)) if state.journal else None,
        )
        self._inputs = self._batch.pins()
        return run

    def _build_inputs(
        self, function: CompiledFunction, variables: dict[str, Any], mapping: CompiledMapping | None
    ) -> dict[str, Any]:
        """Build inputs, also those of one event of many, unless those of the others took too long.

        They are computed in the server, so slow ones cost as a body does. Raises `HogRuntimeError`, `HogThrow` and
        `HogLimit`.
        """
        quota = self._quota
        known = len(quota.slow_runs(function.id))
        try:
            return quota.attempt(function.id, lambda: function.build_inputs(variables, mapping))
        finally:
            assert self._state is not None  # noqa: S101 - inputs are those of a state
            slow = quota.slow_runs(function.id)[known:]
            self._state.timings += [Timing("hog", round(used_s * 1000, 3)) for used_s in slow]

    def _pinned_inputs(self, state: RunState) -> dict[str, Any]:
        sealed = state.sealed_inputs
        content = {} if sealed is None else dict(self._context.box.unseal(sealed.encode()).inputs)
        pinned: dict[str, Any] = from_json(content)
        return pinned

    # --- going on

    def _compute(self, work: Work, *, may_perform: bool) -> Step:
        return Compute(work, partial(self._computed, may_perform=may_perform))

    def _computed(self, outcome: TurnOutcome, *, may_perform: bool) -> Step:
        try:
            run = self._parts[0]
            call = run.take(outcome)
            if run.refused is not None:
                self._note("error", f"The code of the function cannot be compiled: {run.refused}")
                return self._settle("failed", "failed", error=run.refused)
            return self._next(call, may_perform=may_perform)
        except Exception as error:
            return self._broken(error)

    def _next(self, call: PendingCall | None, *, may_perform: bool) -> Step:
        """Return the next step for a call; None ends the program. A second request waits for its own turn."""
        run, state = self._parts
        if call is not None:
            if state.error is not None:
                return self._finish(run, "The program went on to another call after its request had failed.")
            if call.name == "sleep":
                moment = self._woken(call.args, state)
                if moment is None:
                    state.sleep_until = None
                    return self._compute(run.resume(None), may_perform=may_perform)
                return self._suspend(scheduled_at=moment)
            if call.name not in SENDING:
                run.fail(f"Unknown async function '{call.name}'")
                return self._finish(run)
            if not may_perform:
                return self._suspend()
            return self._send(call)
        return self._finish(run)

    def _send(self, call: PendingCall) -> Step:
        run, state = self._parts
        request = sent_by(
            call, key_of(self.claimed.id, state.rerun, run.calls_made), self._context.outbound.mailer.limits
        )
        if isinstance(request, FetchFailure | MailFailure):
            return self._answered(request, 0.0)
        if isinstance(request, FetchRequest):
            causes = [state.globals, *(item.globals for item in state.items)]
            try:
                request = marked(
                    request,
                    site_url=self._context.site.url,
                    token=self._token,
                    function_id=self.claimed.function_id,
                    causes=map(bytes, causes),
                )
            except EndlessLoopError as error:
                state.error = str(error)
                return self._finish(run, state.error)
        self._asked = Perform(request)
        return self._asked

    def _woken(self, args: list[Any], state: RunState) -> datetime | None:
        """Return the time to wake a sleeping program; None when it has slept, or asks for an invalid time.

        The queue returns what is due, even if the clock was set meanwhile: a program that slept has slept.
        """
        if state.sleep_until is not None:
            return None
        seconds = sleep_seconds(args)
        if seconds is None:
            self._note("warn", "sleep takes a number of seconds from 0 to 86400; it did not wait.")
            return None
        due = self._context.now() + timedelta(seconds=seconds)
        state.sleep_until = due.timestamp()
        return due if seconds else None

    def _answered(self, answer: Answer, duration_ms: float) -> Step:
        run, state = self._parts
        state.timings.append(Timing("async_function", round(duration_ms, 3)))
        now = self._context.now()
        if isinstance(answer, FetchResponse) and answer.truncated:
            run.log("warn", "The response was too large; the rest of its body was cut off.")
        login = self._login_key()
        if isinstance(answer, FetchResponse) and login is None and state.logins:
            if answer.status == REFUSED and self._renews(state):
                run.log(
                    "info", "The log-in was refused with status 401; the run begins again with a new one."
                )
                run.begin_again()
                state.logins, state.has_renewed, state.attempts = {}, True, 0
                return self._suspend()
            state.has_renewed = False
        if is_failure(answer):
            state.attempts += 1
            delay_s = self._retries().delay_s(answer, state.attempts, now, self._age_s(now))
            message = failure_text(answer, state.attempts)
            excuse = isinstance(answer, FetchResponse) and excused(answer.status, self._excused_codes())
            level = "info" if excuse else "error"
            if delay_s is not None:
                due = now + timedelta(seconds=delay_s)
                run.log(level, f"{message} Retrying.{next_attempt_text(due, delay_s)}")
                return self._suspend(scheduled_at=due, error=message)
            run.log(level, message)
            if not excuse:
                state.error = run.cleaned(message)
        state.attempts = 0
        self._calls[metric_of(answer)] += 1
        if login is not None and isinstance(answer, FetchResponse) and is_login(answer):
            # Writing that down first would not help: a process that takes the run again has the log-in, or gets one.
            state.logins[login] = mark_of(answer)
            return self._compute(run.resume(for_program(answer)), may_perform=True)
        return self._compute(run.resume(for_program(answer)), may_perform=False)

    def _login_key(self) -> str | None:
        """Return the key of the log-in that the last request asked for; None for other requests."""
        request = None if self._asked is None else self._asked.request
        if not isinstance(request, FetchRequest) or not request.is_login:
            return None
        return key_of_login(self.claimed.function_id, request)

    def _renews(self, state: RunState) -> bool:
        logins = self._context.logins
        renewed = [logins.renew(key, mark, is_new=state.has_renewed) for key, mark in state.logins.items()]
        return any(renewed)

    def _retries(self) -> RetryPolicy:
        return self._context.retries.wanted_by(
            None if self._function is None else self._function.delivery.retry
        )

    def _age_s(self, now: datetime) -> float:
        first = self._parts[1].first_scheduled_us
        began = self.claimed.created_at if first is None else from_micros(first)
        return (now - began).total_seconds()

    def _excused_codes(self) -> Any:
        return () if self._function is None else self._function.non_failure_status_codes

    @property
    def _parts(self) -> tuple[ProgramRun, RunState]:
        assert self._run is not None  # noqa: S101 - begun before
        assert self._state is not None  # noqa: S101
        return self._run, self._state

    # --- settling

    def _finish(self, run: ProgramRun, error: str | None = None) -> TurnResult:
        state = self._parts[1]
        if error is None and run.postponed is not None:
            delayed = self._postpone(run, state, run.postponed)
            if delayed is not None:
                return delayed
        if error is not None:
            run.close()
            run.log("error", error)
        elif run.error is not None:
            run.log_error(run.error)
        else:
            run.log_completion()
        failure = run.error or state.error or self._batch.judge(run)
        if failure is None:
            return self._settle("completed", "succeeded")
        kind = POISON_PILL if run.crashed else None
        return self._settle("failed", "failed", error=failure, kind=kind)

    def _postpone(self, run: ProgramRun, state: RunState, postponed: Postponed) -> TurnResult | None:
        """Put the invocation back to its last call, as its program asked for; None when no attempt is left."""
        now = self._context.now()
        delay_s = self._retries().delay_s(postponed, state.postponed + 1, now, self._age_s(now))
        if delay_s is None:
            return None
        state.postponed += 1
        state.error = None
        message = postponed_text(postponed, state.postponed)
        due = now + timedelta(seconds=delay_s)
        run.log("error", f"{message} Retrying.{next_attempt_text(due, delay_s)}")
        return self._suspend(scheduled_at=due, error=message)

    def _suspend(self, scheduled_at: datetime | None = None, *, error: str | None = None) -> TurnResult:
        """Return the invocation to be put back, with what is needed to reach this point again.

        ``error`` is the reason why the request is repeated.
        """
        run, state = self._parts
        claimed = self.claimed
        if not state.journal:
            self._pin(run, state)
            state.first_scheduled_us = to_micros(claimed.created_at)
        del state.timings[:-MAX_TIMINGS]
        state.journal = NOTHING if run.journal is None else msgspec.Raw(run.journal)
        run.close()
        outcome = InvocationOutcome(
            claimed.id,
            claimed.lock_token,
            "available",
            state=encode_state(state),
            scheduled_at=scheduled_at,
            priority=None if error is None else min(claimed.priority + 1, MAX_PRIORITY),
        )
        return self._settled(outcome, "running", error=None if error is None else run.cleaned(error))

    def _pin(self, run: ProgramRun, state: RunState) -> None:
        """Keep the code and the inputs that this run began with. Inputs may hold secrets, so they are sealed."""
        state.source = run.source
        sealed = self._context.box.seal(Secrets(inputs=self._inputs))
        state.sealed_inputs = None if sealed is None else sealed.decode()

    def _settle(
        self, status: FinalStatus, result: ResultStatus, *, error: str | None = None, kind: str | None = None
    ) -> TurnResult:
        outcome = InvocationOutcome(self.claimed.id, self.claimed.lock_token, status)
        return self._settled(outcome, result, error=error, kind=kind)

    def _broken(self, error: Exception) -> TurnResult:
        """End an invocation after an unexpected error."""
        _logger.error(
            "turn_failed",
            invocation_id=self.claimed.id,
            function_id=self.claimed.function_id,
            exc_info=error,
        )
        message = f"Internal error: {type(error).__name__}"
        self._note("error", message)
        return self._settle("failed", "failed", error=message)

    def _settled(
        self,
        outcome: InvocationOutcome,
        status: ResultStatus,
        *,
        error: str | None = None,
        kind: str | None = None,
    ) -> TurnResult:
        now = self._context.now()
        run = self._run
        over = outcome.status != "available"
        base = self._result(status, now, over=over, error=error, kind=kind)
        next_version = partial(self._context.versions.next, now)
        results = self._batch.results(base, next_version, error, judged=over and status != "cancelled")
        metrics = [self._metric(*of, now, number) for of, number in self._calls.items()]
        statuses = [result.status for result in results] if over else []
        for ended, (metric_kind, name) in _KINDS.items():
            if number := statuses.count(ended):
                metrics.append(self._metric(metric_kind, name, now, number))
        lines = self._lines if run is None else run.lines
        return TurnResult(
            outcome=outcome,
            logs=[self._entry(line) for line in lines],
            metrics=metrics,
            results=results,
            function_id=self.claimed.function_id,
            timings=list(self._state.timings) if self._state is not None and over else [],
            captured=None if run is None else run.captured,
        )

    def _result(
        self, status: ResultStatus, now: datetime, *, over: bool, error: str | None, kind: str | None
    ) -> InvocationResult:
        claimed, state = self.claimed, self._state
        total_ms = sum(timing.duration_ms for timing in state.timings) if state is not None else 0.0
        return InvocationResult(
            invocation_id=claimed.id,
            project_id=claimed.project_id,
            function_id=claimed.function_id,
            status=status,
            attempts=1 + (0 if state is None else state.rerun),
            version=self._context.versions.next(now),
            is_retry=state is not None and state.rerun > 0,
            parent_run_id=claimed.parent_run_id,
            scheduled_at=claimed.scheduled_at,
            first_scheduled_at=claimed.created_at
            if state is None or state.first_scheduled_us is None
            else from_micros(state.first_scheduled_us),
            started_at=self._started_at,
            finished_at=now if over else None,
            duration_ms=round(total_ms),
            error_kind="" if error is None else kind or error_kind(error),
            error_message=None if error is None else clipped(error, MAX_ERROR_CHARS),
            event_uuid=None if state is None else state.event_uuid,
            distinct_id=None if state is None else state.distinct_id,
            person_id=None if state is None else state.person_id,
            # A successful run is not run again, so its globals need not be kept.
            invocation_globals=kept_globals(state.globals, state.mapping_id)
            if state is not None and status == "failed"
            else None,
        )

    def _note(self, level: str, text: str) -> None:
        if self._run is not None:
            self._run.log(level, text)
        else:
            self._lines.append(Line(level, clipped(text), self._context.now()))

    def _entry(self, line: Line) -> LogEntry:
        claimed = self.claimed
        return LogEntry(claimed.project_id, claimed.function_id, claimed.id, line.at, line.level, line.text)

    def _metric(self, kind: str, name: str, now: datetime, count: int = 1) -> AppMetric:
        return AppMetric(self.claimed.project_id, self.claimed.function_id, kind, name, count, now)
