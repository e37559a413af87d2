"""Merging many events into one run: functions with ``x_delivery.batch`` (spec: hog-runtime 11).

Each event's invocation waits for others in a queue of its own. When there are enough, or one has waited long
enough, they become one invocation, in one transaction; from then on it is a run like any other, which may be
retried and continues after a crash (`batch_run`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import uuid5

from hoglab.delivery.runs.results import Versions
from hoglab.delivery.runs.state import (
    INVOCATIONS,
    InvalidStateError,
    Item,
    RunState,
    decode_state,
    encode_state,
    state_of_batch,
)
from hoglab.storage.database.types import to_micros
from hoglab.storage.invocations import InvocationResult, NewInvocation

if TYPE_CHECKING:
    from hoglab.storage.invocations import ClaimedInvocation

BATCH_QUEUE = "batch"
"""Queue of invocations that wait to share a run with others."""


def merge(
    claimed: Sequence[ClaimedInvocation], versions: Versions, now: datetime, source: str | None
) -> tuple[NewInvocation | None, list[InvocationResult]]:
    """Return one invocation of many, None when none of them can be read, and the result of each unreadable one.

    It keeps the present ``source``: a later program may know of one event only.
    """
    items: list[Item] = []
    results: list[InvocationResult] = []
    for invocation in claimed:
        try:
            items.append(item_of(invocation, decode_state(invocation.state)))
        except InvalidStateError as error:
            results.append(_result(invocation, versions, now, failure=str(error)))
    if not items:
        return None, results
    batch_id = str(uuid5(INVOCATIONS, "batch/" + ",".join(item.id for item in items)))
    kept = {item.id for item in items}
    results += [
        _result(invocation, versions, now, batch_id=batch_id)
        for invocation in claimed
        if invocation.id in kept
    ]
    oldest, state = claimed[0], state_of_batch(items, source)
    batch = NewInvocation(
        batch_id, oldest.project_id, oldest.function_id, encode_state(state), priority=oldest.priority
    )
    return batch, results


def item_of(claimed: ClaimedInvocation, state: RunState) -> Item:
    """Return an invocation of one event as an item of a batch."""
    first_us = state.first_scheduled_us
    return Item(
        claimed.id,
        state.globals,
        state.event_uuid,
        state.distinct_id,
        state.person_id,
        state.mapping_id,
        first_scheduled_us=to_micros(claimed.created_at) if first_us is None else first_us,
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
