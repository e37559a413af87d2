"""Rows of the invocation queue inside of a transaction of SQLite, which has one writer at a time."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hoglab.storage.database.types import to_micros
from hoglab.storage.invocations.statements import read_statements
from hoglab.storage.invocations.tables import AppliedOutcome, claimed_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from hoglab.storage.event_log.partitions import PartitionDone
    from hoglab.storage.invocations.invocation import ClaimedInvocation, ConsumerPosition, InvocationOutcome
    from hoglab.storage.invocations.tables import Lane, Row

SQL = read_statements(Path(__file__).with_name("statements.sql"))


class SqliteQueueRows:
    """See `QueueRows`. Nobody else writes meanwhile, so there is nothing to lock, and nobody to be woken."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def lock_keys(self, keys: Iterable[tuple[str, str]]) -> None:
        """Do nothing."""

    def announce(self) -> None:
        """Do nothing."""

    def advance(self, position: ConsumerPosition | PartitionDone, now: int) -> None:
        """Move a consumer's position."""
        self._connection.execute(SQL["advance"], (*position, now))

    def insert(self, rows: Sequence[Row]) -> Mapping[str, int]:
        """Add invocations, and return the number of new ones by function."""
        last_row = self._connection.execute(SQL["last_row"]).fetchone()[0]
        if self._connection.executemany(SQL["insert"], rows).rowcount == len(rows):
            return Counter(row[2] for row in rows)
        added = self._connection.execute(SQL["rows_after"], {"last_row": last_row})
        return Counter(function_id for (function_id,) in added)

    def insert_again(self, row: Row, version: int) -> int:
        """Begin a finished invocation again if its result has a version."""
        return self._connection.execute(SQL["insert_again"], (*row, version)).rowcount

    def count_masked(self, counts: Sequence[Mapping[str, Any]]) -> int:
        """Replace counts that are what ``before`` says, and return how many were."""
        return self._connection.executemany(SQL["count_masked"], counts).rowcount

    def add_logs(self, rows: Sequence[Row]) -> None:
        self._connection.executemany(SQL["add_log"], rows)

    def add_metrics(self, rows: Sequence[Row]) -> None:
        self._connection.executemany(SQL["add_metric"], rows)

    def save_results(self, rows: Sequence[Row]) -> None:
        self._connection.executemany(SQL["save_result"], rows)

    def save_dead(self, rows: Sequence[Row]) -> None:
        self._connection.executemany(SQL["save_dead"], rows)

    def trim_dead(self, owners: Sequence[tuple[int, str]], most: int) -> int:
        """Keep the newest dead letters of each project and function, and return how many were deleted."""
        values = [
            {"project_id": project_id, "function_id": function_id, "most": most}
            for project_id, function_id in owners
        ]
        return self._connection.executemany(SQL["trim_dead"], values).rowcount

    def forget_dead(self, ids: Sequence[str]) -> None:
        self._connection.execute(SQL["forget_dead"], {"ids": json.dumps(list(ids))})

    def advance_job(self, step: Mapping[str, Any]) -> bool:
        """Record a step of a job, and return whether the job runs and was where the step begins."""
        return self._connection.execute(SQL["advance_job"], step).rowcount > 0

    def oldest(self, lane: Lane, most: int) -> list[ClaimedInvocation]:
        """Return the oldest available invocations of a lane, due or not."""
        rows = self._connection.execute(SQL["oldest"], {**lane._asdict(), "most": most})
        return list(map(claimed_of, rows))

    def complete(self, ids: Sequence[str], now: int) -> None:
        """End available invocations as completed."""
        self._connection.executemany(SQL["complete"], [{"id": id_, "now": now} for id_ in ids])

    def apply(self, outcomes: Sequence[InvocationOutcome], now: int) -> list[AppliedOutcome]:
        """Apply outcomes whose lock tokens are valid."""
        locked = self.locked([(outcome.id, outcome.lock_token) for outcome in outcomes])
        valid = [
            (outcome, locked[outcome.id, outcome.lock_token])
            for outcome in outcomes
            if (outcome.id, outcome.lock_token) in locked
        ]
        self._connection.executemany(
            SQL["finish"],
            [
                {"id": outcome.id, "status": outcome.status, "now": now}
                for outcome, _ in valid
                if outcome.status != "available"
            ],
        )
        self._connection.executemany(
            SQL["suspend"],
            [
                {
                    "id": outcome.id,
                    "due": now if outcome.scheduled_at is None else to_micros(outcome.scheduled_at),
                    "priority": outcome.priority,
                    "state": outcome.state,
                }
                for outcome, _ in valid
                if outcome.status == "available"
            ],
        )
        return [AppliedOutcome(outcome.id, *key, outcome.status) for outcome, key in valid]

    def locked(self, locks: Sequence[tuple[str, str]]) -> dict[tuple[str, str], tuple[str, str | None]]:
        """Return the valid locks among some (id, token), with the function and order key of the invocation."""
        rows = self._connection.execute(SQL["locked"], {"locks": json.dumps(locks)}) if locks else ()
        return {(id_, token): (function_id, order_key) for id_, token, function_id, order_key in rows}

    def unblock(self, keys: Sequence[tuple[str, str]], now: int) -> int:
        """Make the oldest unfinished invocation of each function id and order key available; return how many."""
        values = [
            {"function_id": function_id, "order_key": order_key, "now": now}
            for function_id, order_key in keys
        ]
        return self._connection.executemany(SQL["unblock_next"], values).rowcount
