"""Which events are to be erased, in ClickHouse's words. What deletes takes no parameters, so values are in the text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hoglab.storage.event_store.clickhouse.reader import bounded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hoglab.storage.event_store import Doomed

WIDE: Final = {"max_query_size": 2**30, "max_ast_elements": 2**30, "max_expanded_ast_elements": 2**30}
"""Statements may name many ids."""
AT_ONCE: Final = {"mutations_sync": 2}
"""What deletes returns when it is done, on all replicas."""


def condition_of(doomed: Doomed) -> str:
    """SQL over a row of the table of events. Raises `ValueError` for what `Doomed`'s class methods do not make."""
    match doomed.parameters:
        case {"project_id": int(project), "moment": moment}:
            since = bounded(moment).replace(tzinfo=None).isoformat(" ", "microseconds")
            return f"project_id = {project} AND timestamp < toDateTime64('{since}', 6, 'UTC')"
        case {
            "project_id": int(project),
            "log_offset": int(offset),
            "person_ids": people,
            "distinct_ids": names,
        }:
            of_person = f"ifNull(person_id IN {listed(people)}, 0) OR distinct_id IN {listed(names)}"
            return f"project_id = {project} AND log_offset <= {offset} AND ({of_person})"
    raise ValueError("which events are to be erased cannot be said to this engine")


def listed(texts: Iterable[str]) -> str:
    """A list of texts."""
    quoted = ", ".join("'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'" for text in texts)
    return f"[{quoted}]"
