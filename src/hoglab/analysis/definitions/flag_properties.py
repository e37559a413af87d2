"""Flag values in events: whether there are any (spec experiments-api 8.4)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hoglab.storage.event_store import EventReader

TIMEOUT_S = 10.0

# Only the newest events are looked into: the question is whether an SDK sends flags at all.
_SEEN = """
SELECT count(*) FROM (
    SELECT properties FROM stored_events
    WHERE project_id = $project AND event = $event AND timestamp >= $since
    ORDER BY timestamp DESC LIMIT {sample}
) AS sampled
WHERE {seen}
"""
PREFIX = "$feature/"


def flag_property_seen(store: EventReader) -> Callable[[int, Collection[str], datetime, int], bool]:
    """Return a test ``(project_id, event_names, since, sample)``.

    It tells whether any of the newest ``sample`` events of each name since a moment has a property that begins with
    ``$feature/``.
    """

    def seen(project_id: int, event_names: Collection[str], since: datetime, sample: int) -> bool:
        with store.reader() as reader:
            for name in event_names:
                values = {"project": project_id, "event": name, "since": since}
                sql = _SEEN.format(sample=sample, seen=store.dialect.any_key("properties", PREFIX))
                if reader.execute(sql, values, timeout_s=TIMEOUT_S)[0][0]:
                    return True
        return False

    return seen
