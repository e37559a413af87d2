"""Runs on many events at once: functions with ``x_delivery.batch`` (spec: hog-runtime 11).

Each event's invocation waits for others in a queue of its own. When there are enough, or one has waited long enough,
they become one invocation, in one transaction; from then on it is a run like any other, which may be sent again and
goes on after a crash. Its program sees ``events``, a list of ``{event, person, groups, inputs}``; ``event``,
``person``, ``groups`` and ``inputs`` are those of the first. A list that it returns, one entry for each event, says
how each fared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid5

import orjson

from hoglab.delivery.results import Versions, kept_globals
from hoglab.delivery.state import INVOCATIONS, InvalidStateError, Item, State, decode_state, encode_state
from hoglab.hog.errors import HogLimit, HogRuntimeError, HogThrow
from hoglab.hog.rt.values import from_json, to_json
from hoglab.storage.database.types import to_micros
from hoglab.storage.invocations import InvocationResult, NewInvocation

if TYPE_CHECKING:
    from hoglab.storage.invocations import ClaimedInvocation

BATCH_QUEUE = "batch"
"""Where invocations wait for others."""

REPORTED = "The function reported a failure."


def merge(
    claimed: Sequence[ClaimedInvocation], versions: Versions, now: datetime, source: str | None
) -> tuple[NewInvocation | None, list[InvocationResult]]:
    """One invocation of many, None when none of them can be read, and what is known of each.

    It keeps the ``source`` of now: a later program may know of one event only.
    """
    items: list[Item] = []
    results: list[InvocationResult] = []
    for one in claimed:
        try:
            items.append(_item(one, decode_state(one.state)))
        except InvalidStateError as error:
            results.append(_result(one, versions, now, failure=str(error)))
    if not items:
        return None, results
    batch_id = str(uuid5(INVOCATIONS, "batch/" + ",".join(item.id for item in items)))
    kept = {item.id for item in items}
    results += [_result(one, versions, now, batch_id=batch_id) for one in claimed if one.id in kept]
    first, oldest = items[0], claimed[0]
    state = State(
        globals=first.globals,
        event_uuid=first.event_uuid,
        distinct_id=first.distinct_id,
        person_id=first.person_id,
        mapping=first.mapping,
        items=items,
        source=source,
        first_scheduled_us=first.first_scheduled_us,
    )
    made = NewInvocation(
        batch_id, oldest.project_id, oldest.function_id, encode_state(state), priority=oldest.priority
    )
    return made, results


def _item(claimed: ClaimedInvocation, state: State) -> Item:
    first_us = state.first_scheduled_us
    return Item(
        claimed.id,
        state.globals,
        state.event_uuid,
        state.distinct_id,
        state.person_id,
        state.mapping,
        to_micros(claimed.created_at) if first_us is None else first_us,
    )


def _result(
    claimed: ClaimedInvocation,
    versions: Versions,
    now: datetime,
    *,
    batch_id: str | None = None,
    failure: str | None = None,
) -> InvocationResult:
    return InvocationResult(
        invocation_id=claimed.id,
        project_id=claimed.project_id,
        function_id=claimed.function_id,
        status="running" if failure is None else "failed",
        attempts=1,
        version=versions.next(now),
        parent_run_id=batch_id,
        scheduled_at=claimed.scheduled_at,
        first_scheduled_at=claimed.created_at,
        finished_at=None if failure is None else now,
        error_kind="" if failure is None else "hog_error",
        error_message=failure,
    )


def alone(claimed: ClaimedInvocation, state: State) -> list[Item]:
    """The items of a run: those that it was made of, or what it is itself about."""
    return state.items or [_item(claimed, state)]


@dataclass(slots=True)
class Contents:
    """What the program of a batch sees. ``inputs`` by id of the item, as plain JSON data; ``failed``: the items that
    it does not see, for their inputs failed, and why; ``shown``: the ids of those that it sees."""

    events: list[dict[str, Any]] = field(default_factory=list)
    inputs: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    shown: list[str] = field(default_factory=list)

    def pins(self) -> dict[str, Any]:
        """What `add` takes as ``pinned`` when the run goes on."""
        return {"inputs": self.inputs, "failed": self.failed}

    def add(
        self,
        item: Item,
        more: dict[str, Any],
        build: Callable[[dict[str, Any]], dict[str, Any]],
        explain: Callable[[BaseException], str],
        pinned: dict[str, Any] | None,
    ) -> None:
        """Show an item, with the inputs that it began with or (None) new ones."""
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


def failures(value: Any, count: int) -> dict[int, str]:
    """Which of ``count`` events failed by what the program returned, by their places, and why.

    Raises `ValueError` for a list of another length. What is no list says that all is well.
    """
    if not isinstance(value, list):
        return {}
    if len(value) != count:
        raise ValueError(f"The program returned {len(value)} outcomes for {count} events.")
    found = {place: _failure(outcome) for place, outcome in enumerate(value)}
    return {place: text for place, text in found.items() if text is not None}


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
    """The result of one item of a batch whose own is ``base``; ``failure`` makes it failed."""
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
        invocation_globals=kept_globals(item.globals, item.mapping) if status == "failed" else None,
    )
