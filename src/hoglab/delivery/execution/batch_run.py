"""A run on many events: what its program sees of them, and the result of each (spec: hog-runtime 11).

The program sees ``events``, a list of ``{event, person, groups, inputs}``; ``event``, ``person``, ``groups`` and
``inputs`` are those of the first. A list that it returns, one entry for each event, gives the result of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import orjson
from msgspec.structs import replace

from hoglab.delivery.bodies.child import Work
from hoglab.delivery.bodies.protocol import json_of
from hoglab.delivery.execution.program_run import ProgramRun, known_globals
from hoglab.delivery.runs.results import INPUTS_FAILED, error_kind, kept_globals
from hoglab.hog import HogLimit, HogRuntimeError, HogThrow, from_json, to_json

if TYPE_CHECKING:
    from hoglab.delivery.execution.program_run import EventFacts
    from hoglab.delivery.execution.steps import RunContext
    from hoglab.delivery.runs.state import Item, RunState
    from hoglab.functions.runtime import CompiledFunction, CompiledMapping
    from hoglab.functions.secrets import Redact
    from hoglab.http.identity import Project
    from hoglab.storage.invocations import InvocationResult

REPORTED = "The function reported a failure."

MAPPING_GONE = "The mapping of the function is disabled or deleted."

MAX_ITEM_LINES = 24
"""Maximum number of events of a batch whose failures have lines of their own in the log."""


class BatchInputsError(Exception):
    """The inputs of no event of a batch can be built; the text says why."""


class BuildInputs(Protocol):
    """Builds the inputs of a function for one event. Raises `HogRuntimeError`, `HogThrow` and `HogLimit`."""

    def __call__(
        self, function: CompiledFunction, variables: dict[str, Any], mapping: CompiledMapping | None
    ) -> dict[str, Any]: ...


@dataclass(slots=True)
class Contents:
    """Events of a batch as its program sees them.

    ``inputs`` by id of the item, as plain JSON data; ``failed``: the reasons by id of the items that it does not
    see, because their inputs failed; ``shown``: the ids of the items that it sees.
    """

    events: list[dict[str, Any]] = field(default_factory=list)
    inputs: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    shown: list[str] = field(default_factory=list)

    def add(
        self,
        item: Item,
        more: dict[str, Any],
        build: Callable[[dict[str, Any]], dict[str, Any]],
        explain: Callable[[BaseException], str],
        pinned: dict[str, Any] | None,
    ) -> None:
        """Show an item to the program, with the inputs that it began with or (None) new ones."""
        seen = {**more, **orjson.loads(memoryview(item.globals))}
        if pinned is None:
            try:
                self.inputs[item.id] = to_json(build(from_json(seen)))
            except (HogRuntimeError, HogThrow, HogLimit) as error:
                self.failed[item.id] = f"Error building inputs: {explain(error)}"
                return
        elif item.id in pinned["inputs"]:
            self.inputs[item.id] = pinned["inputs"][item.id]
        else:
            self.failed[item.id] = pinned["failed"][item.id]
            return
        self.shown.append(item.id)
        names = ("event", "person", "groups")
        self.events.append({name: seen.get(name) for name in names} | {"inputs": self.inputs[item.id]})


class BatchRun:
    """The events of one run. Call `program` once, then `judge`; `results` at any time."""

    def __init__(self, items: Sequence[Item] = ()) -> None:
        """Create the run; ``items`` are the parts of its invocation, none for one about a single event."""
        self._items = items
        self._contents: Contents | None = None
        self._failed: dict[str, str] = {}

    @property
    def is_one_of_many(self) -> bool:
        """Whether the run was made of several events, whatever its function's present options are."""
        return len(self._items) > 1

    def program(
        self,
        context: RunContext,
        function: CompiledFunction,
        project: Project,
        state: RunState,
        alone: Item,
        *,
        build_inputs: BuildInputs,
        pinned: dict[str, Any] | None,
    ) -> ProgramRun:
        """Return the program on all events whose inputs can be built.

        ``alone``: the invocation as its only event, when it was not made of several; ``build_inputs``: of one event;
        ``pinned``: the inputs that the run began with, None when it begins. Raises `BatchInputsError`.
        """
        source = context.site.source(function)
        contents = self._contents = Contents()
        different: dict[bytes, Redact] = {}
        facts: dict[str, EventFacts] = {}
        for item in self._items or [alone]:
            known = known_globals(item.globals)
            facts[item.id] = known.event
            more: dict[str, Any] = {"source": source, "groups": {}}
            if not known.person:
                more["person"] = context.event_globals.late_person(project, known.event.distinct_id)
            mapping = function.mapping_of(item.mapping_id)
            if pinned is None and function.lacks_mapping(item.mapping_id):
                contents.failed[item.id] = MAPPING_GONE
                continue
            build = partial(build_inputs, function, mapping=mapping)
            contents.add(item, more, build, function.input_failure, pinned)
            if item.id in contents.inputs:
                inputs = contents.inputs[item.id]
                key = json_of([item.mapping_id, inputs])
                different[key] = different.get(key) or function.redactor(inputs, mapping)
        self._failed.update(contents.failed)
        if not contents.events:
            raise BatchInputsError(next(iter(contents.failed.values())))

        def redact(text: str) -> str:
            for redact in different.values():
                text = redact(text)
            return text

        work = Work(
            alone.id,
            function.id,
            function.hog if state.source is None else state.source,
            bytes(state.globals),
            json_of({"source": source, "events": contents.events, **contents.events[0]}),
            bytes(state.journal) if state.journal else None,
        )
        return ProgramRun(work, facts[contents.shown[0]], redact, context.now, timings=state.timings)

    def pins(self) -> dict[str, Any]:
        """Return the value of ``pinned`` with which `program` continues the run."""
        contents = self._contents or Contents()
        return {"inputs": contents.inputs, "failed": contents.failed}

    def judge(self, run: ProgramRun) -> str | None:
        """Read the result of each event from the program's result.

        Return the problem of all of them, if there is one.
        """
        contents = self._contents
        if contents is None:
            return None
        try:
            reasons = failures(run.value, len(contents.shown))
        except ValueError as error:
            run.log("error", str(error))
            return str(error)
        for place, text in reasons.items():
            self._failed[contents.shown[place]] = run.cleaned(text)
        for place, text in list(reasons.items())[:MAX_ITEM_LINES]:
            uuid = contents.events[place]["event"].get("uuid")
            run.log("error", f"Error executing function on event {uuid}: {text}")
        if not self._items and self._failed:
            return next(iter(self._failed.values()))
        return None

    def results(
        self, base: InvocationResult, next_version: Callable[[], int], error: str | None, *, judged: bool
    ) -> list[InvocationResult]:
        """Return the results of the events, or the run's own, ``base``, when it was not made of several.

        ``judged``: whether the run has ended by itself, so that each event has a result of its own.
        """
        if not self._items:
            return [base]
        inputs_failed = {} if self._contents is None else self._contents.failed
        results = []
        for item in self._items:
            failure = self._failed.get(item.id, error) if judged else error
            result = item_result(base, item, next_version(), failure)
            if failure is not None and not result.error_kind:
                kind = INPUTS_FAILED if item.id in inputs_failed else error_kind(failure)
                result = replace(result, error_kind=kind)
            results.append(result)
        return results


def failures(value: Any, count: int) -> dict[int, str]:
    """Return the reasons of failed events by position, of ``count`` events, from the program's result.

    Raises `ValueError` for a list of another length. A result that is not a list means success.
    """
    if not isinstance(value, list):
        return {}
    if len(value) != count:
        raise ValueError(f"The program returned {len(value)} outcomes for {count} events.")
    reasons = {place: _failure(outcome) for place, outcome in enumerate(value)}
    return {place: text for place, text in reasons.items() if text is not None}


def _failure(outcome: Any) -> str | None:
    match outcome:
        case False:
            return REPORTED
        case str():
            return outcome or REPORTED
        case {"error": str() as text} if text:
            return text
        case {"error": error} if error:
            return orjson.dumps(error).decode()
        case {"ok": False}:
            return REPORTED
    return None


def item_result(base: InvocationResult, item: Item, version: int, failure: str | None) -> InvocationResult:
    """Return the result of one item of a batch whose own result is ``base``; ``failure`` makes it failed."""
    status = base.status if failure is None else "failed"
    return replace(
        base,
        invocation_id=item.id,
        parent_run_id=base.invocation_id,
        status=status,
        version=version,
        error_message=failure,
        error_kind="" if failure is None else base.error_kind,
        event_uuid=item.event_uuid,
        distinct_id=item.distinct_id,
        person_id=item.person_id,
        invocation_globals=kept_globals(item.globals, item.mapping_id) if status == "failed" else None,
    )
