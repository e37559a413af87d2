"""Events to be erased, in ClickHouse's words. What deletes takes no parameters, so values are in the text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hoglab.storage.event_store import EventsBefore, EventsOfPersons
from hoglab.storage.event_store.clickhouse.reader import bounded
from hoglab.storage.event_store.dialects.clickhouse import literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hoglab.storage.event_store import ErasableEvents

WIDE: Final = {"max_query_size": 2**30, "max_ast_elements": 2**30, "max_expanded_ast_elements": 2**30}
"""Statements may name many ids."""
AT_ONCE: Final = {"mutations_sync": 2}
"""Setting with which deletes return when they are done, on all replicas."""


def condition_of(events: ErasableEvents) -> str:
    """Return SQL over a row of the table of events."""
    match events:
        case EventsBefore(project_id, moment):
            since = bounded(moment).replace(tzinfo=None).isoformat(" ", "microseconds")
            return f"project_id = {project_id} AND timestamp < toDateTime64('{since}', 6, 'UTC')"
        case EventsOfPersons(project_id, person_ids, distinct_ids, log_offset):
            persons, names = listed(map(str, person_ids)), listed(distinct_ids)
            of_persons = f"ifNull(person_id IN {persons}, 0) OR distinct_id IN {names}"
            return f"project_id = {project_id} AND log_offset <= {log_offset} AND ({of_persons})"


def listed(texts: Iterable[str]) -> str:
    """Return a list of texts."""
    return f"[{', '.join(map(literal, texts))}]"
