"""The tables of the aggregate cache: the work of one answer, the growth of logs, and the notes of merges.

Each step is a transaction that writes a table together with its extent, so that a step is done or not. No transaction
reads its own writes: the engine (2.0.0) misses its own rows when they exceed a row group.
"""

# ruff: noqa: S608 - names of tables are made of digests, and numbers are numbers

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import structlog

from hoglab.analysis.incremental.materialization import SCHEMA, VERSION, Materialization, RelevanceLog
from hoglab.analysis.query.scope import SqlStatement
from hoglab.storage.event_store import EventStoreUnavailableError, QueryError
from hoglab.storage.event_store.transactions import transaction

if TYPE_CHECKING:
    from hoglab.storage.event_store import Reader

TABLES = f"""
CREATE TABLE {SCHEMA}.about (version INTEGER, seq BIGINT, uuid UUID);
CREATE TABLE {SCHEMA}.log (key VARCHAR, watermark BIGINT, since TIMESTAMP, corrected BIGINT);
CREATE TABLE {SCHEMA}.contributions (
    key VARCHAR, logs VARCHAR[], watermark BIGINT, span_end TIMESTAMP, merges BIGINT, increments INTEGER, used DOUBLE
);
CREATE TABLE {SCHEMA}.applied_override (project_id INTEGER, old_person_id UUID, person_id UUID);
CREATE TABLE {SCHEMA}.merge (number BIGINT, project_id INTEGER, person_id UUID);
INSERT INTO {SCHEMA}.about VALUES ({VERSION}, 0, NULL);
"""
_CORRECTED = "seq > $corrected AND seq <= $newest"
TO_BE_REBUILT = -1
"""The watermark of contributions that cannot go on from what they are."""
_CHANGED_OVERRIDES = f"""
CREATE OR REPLACE TEMP TABLE changed_override AS
WITH now AS (SELECT old_person_id, person_id FROM person_override WHERE project_id = $project),
applied AS (SELECT old_person_id, person_id FROM {SCHEMA}.applied_override WHERE project_id = $project)
SELECT *, TRUE AS holds FROM (SELECT * FROM now EXCEPT SELECT * FROM applied)
UNION ALL SELECT *, FALSE FROM (SELECT * FROM applied EXCEPT SELECT * FROM now)
"""
_NEVER_MERGED = (
    "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM person_override WHERE project_id = $project) "
    f"AND NOT EXISTS (SELECT 1 FROM {SCHEMA}.merge WHERE project_id = $project)"
)
_NOTE_MERGED = (
    f"INSERT INTO {SCHEMA}.merge SELECT $number, $project, person FROM "
    "(SELECT old_person_id AS person FROM changed_override UNION SELECT person_id FROM changed_override)"
)
_DROP_OVERRIDES = (
    f"DELETE FROM {SCHEMA}.applied_override WHERE project_id = $project "
    "AND (old_person_id, person_id) IN (SELECT (old_person_id, person_id) FROM changed_override WHERE NOT holds)"
)
_ADD_OVERRIDES = (
    f"INSERT INTO {SCHEMA}.applied_override "
    "SELECT $project, old_person_id, person_id FROM changed_override WHERE holds"
)

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class RefreshWork:
    """Cost of one answer.

    It counts the events and entities examined, the entities that continued from their state, and whether
    contributions were rebuilt.
    """

    events: int = 0
    entities: int = 0
    resumed: int = 0
    rebuilt: bool = False
    checked: bool = False
    mismatch: bool = False


@dataclass(slots=True)
class RefreshRun:
    """One answer: its reader, and the extent of the events that it examines."""

    reader: Reader
    timeout_s: float
    newest: int = 0
    work: RefreshWork = field(default_factory=RefreshWork)

    def run(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        return self.reader.execute(sql, parameters, timeout_s=self.timeout_s)


def naive(moment: datetime) -> datetime:
    """Return a moment as the engine has it: UTC without a zone."""
    return moment.astimezone(UTC).replace(tzinfo=None)


def make(refresh: RefreshRun, table: str, statement: SqlStatement, *, temporary: bool = False) -> None:
    kind = "TEMP TABLE" if temporary else "TABLE"
    refresh.run(f"CREATE OR REPLACE {kind} {table} AS {statement.sql}", statement.parameters)


def insert(refresh: RefreshRun, table: str, statement: SqlStatement) -> None:
    refresh.run(f"INSERT INTO {table} {statement.sql}", statement.parameters)


@contextmanager
def temporary_tables(refresh: RefreshRun, *tables: str) -> Iterator[None]:
    """Drop the tables, which the block creates, after it."""
    try:
        yield
    except BaseException:
        with suppress(QueryError, EventStoreUnavailableError):  # the error before this one is the one to tell
            _drop(refresh, tables)
        raise
    _drop(refresh, tables)


def _drop(refresh: RefreshRun, tables: tuple[str, ...]) -> None:
    refresh.run("; ".join(f"DROP TABLE IF EXISTS {table}" for table in tables))


# -- logs ----------------------------------------------------------------------------------------------


def grow(refresh: RefreshRun, logs: Sequence[RelevanceLog], since: datetime, chunk: int) -> None:
    """Add every event up to the newest to logs, from the moment ``since`` on."""
    since = naive(since)
    extents = {key: extent for key, *extent in refresh.run(f"SELECT key, watermark, since FROM {SCHEMA}.log")}
    behind: dict[tuple[int, datetime], list[RelevanceLog]] = {}
    for log in logs:
        if log.key not in extents:
            with transaction(refresh.reader):
                refresh.run(log.made(), log.parameters)
                refresh.run(
                    f"INSERT INTO {SCHEMA}.log VALUES ($key, 0, $since, $newest)",
                    {"key": log.key, "since": since, "newest": refresh.newest},
                )
        watermark, begin = extents.get(log.key, (0, since))
        if since < begin:  # further back than anybody looked before
            extent = "seq <= $watermark AND timestamp >= $since AND timestamp < $begin"
            _add(refresh, [log], extent, watermark, {"watermark": watermark, "since": since, "begin": begin})
            refresh.work.events += watermark
        behind.setdefault((watermark, min(since, begin)), []).append(log)
    for (watermark, begin), same in behind.items():
        for start in range(watermark, refresh.newest, chunk):
            until = min(start + chunk, refresh.newest)
            extent = "seq > $start AND seq <= $until AND timestamp >= $since"
            _add(refresh, same, extent, until, {"start": start, "until": until, "since": begin})
            refresh.work.events += (until - start) * len(same)


def retract(refresh: RefreshRun, logs: Sequence[RelevanceLog]) -> None:
    """Take events that were replaced out of logs; what was computed from these logs has to be computed again.

    The events that replace them are new ones.
    """
    extents: dict[str, int] = dict(refresh.run(f"SELECT key, corrected FROM {SCHEMA}.log"))
    for log in logs:
        bounds = {"corrected": extents.get(log.key, refresh.newest), "newest": refresh.newest}
        if bounds["corrected"] >= refresh.newest:
            continue
        gone = f"seq IN (SELECT old_seq FROM event_correction WHERE {_CORRECTED})"
        [(count,)] = refresh.run(f"SELECT count(*) FROM {log.table} WHERE {gone}", bounds)
        with transaction(refresh.reader):
            if count:
                refresh.run(f"DELETE FROM {log.table} WHERE {gone}", bounds)
                refresh.run(
                    f"UPDATE {SCHEMA}.contributions SET watermark = {TO_BE_REBUILT} WHERE list_contains(logs, $key)",
                    {"key": log.key},
                )
            refresh.run(
                f"UPDATE {SCHEMA}.log SET corrected = $newest WHERE key = $key",
                {"key": log.key, "newest": refresh.newest},
            )


def _add(
    refresh: RefreshRun, logs: Sequence[RelevanceLog], extent: str, watermark: int, bounds: Mapping[str, Any]
) -> None:
    """Add the events of an extent to logs, and note the new extent."""
    keys = ", ".join(f"'{log.key}'" for log in logs)
    with transaction(refresh.reader):
        for log in logs:
            refresh.run(log.grown(extent), {**log.parameters, **bounds})
        refresh.run(
            f"UPDATE {SCHEMA}.log SET watermark = $watermark, since = $since WHERE key IN ({keys})",
            {"watermark": watermark, "since": bounds["since"]},
        )
        # An event that is in the logs, by which other events are told from these.
        refresh.run(
            f"UPDATE {SCHEMA}.about SET seq = $seq, "
            "uuid = (SELECT uuid FROM stored_events WHERE stored_events.seq = $seq)",
            {"seq": watermark},
        )


def drop_unused_logs(refresh: RefreshRun) -> None:
    unused = refresh.run(
        f"SELECT key FROM {SCHEMA}.log WHERE key NOT IN (SELECT unnest(logs) FROM {SCHEMA}.contributions)"
    )
    for (key,) in unused:
        refresh.run(f"DROP TABLE {SCHEMA}.log_{key}")
        refresh.run(f"DELETE FROM {SCHEMA}.log WHERE key = $key", {"key": key})


# -- merges --------------------------------------------------------------------------------------------


def apply_merges(refresh: RefreshRun, view: Materialization) -> tuple[int, bool]:
    """Record the newly merged persons; return the number of the last record, and whether any were ever merged."""
    project = {"project": view.question.exposures.project_id}
    if refresh.run(_NEVER_MERGED, project):
        return 0, False
    refresh.run(_CHANGED_OVERRIDES, project)
    [(changed,)] = refresh.run("SELECT count(*) FROM changed_override")
    if changed:
        [(number,)] = refresh.run(f"SELECT coalesce(max(number), 0) + 1 FROM {SCHEMA}.merge")
        with transaction(refresh.reader):
            refresh.run(_NOTE_MERGED, {**project, "number": number})
            refresh.run(_DROP_OVERRIDES, project)
            refresh.run(_ADD_OVERRIDES, project)
    refresh.run("DROP TABLE changed_override")
    [(merges, overrides)] = refresh.run(
        f"SELECT (SELECT coalesce(max(number), 0) FROM {SCHEMA}.merge WHERE project_id = $project), "
        f"(SELECT count(*) FROM {SCHEMA}.applied_override WHERE project_id = $project)",
        project,
    )
    return merges, overrides > 0
