"""Rows of the invocation queue inside of a transaction of PostgreSQL, beside the transactions of other processes.

Statements wait for the server as rarely as they can: those without a result are sent with the next one that has some.

Of one order key, who enqueues and who finishes take turns by an advisory lock until their transactions are over, so
that each sees what the other did. All of these locks are taken in ascending order, and before the rows.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hoglab.storage.database.postgres.session import settle
from hoglab.storage.database.types import to_micros
from hoglab.storage.event_log.leases import finish_within
from hoglab.storage.event_log.partitions import PartitionDone
from hoglab.storage.invocations.statements import read_statements
from hoglab.storage.invocations.tables import AppliedOutcome, claimed_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import psycopg

    from hoglab.storage.invocations.invocation import ClaimedInvocation, ConsumerPosition, InvocationOutcome
    from hoglab.storage.invocations.tables import Lane, Row

SQL = read_statements(Path(__file__).with_name("statements.sql"))
NO_KEY = "-"
"""The end of a lock token that says of its invocation that it has no order key, so that nobody asks when it ends."""

_NEW = (
    "id",
    "project_id",
    "function_id",
    "parent_run_id",
    "queue",
    "priority",
    "scheduled_at",
    "log_offset",
    "state",
    "created_at",
    "order_key",
)
"""Columns of a row that is added, in the order of its values."""


class PostgresQueueRows:
    """See `QueueRows`."""

    def __init__(self, connection: psycopg.Connection[Any], process: str = "") -> None:
        """Change rows in the transaction of a connection.

        ``process`` tells the notifications of this process apart from those of others.
        """
        self._connection = connection
        self._process = process

    def _run(self, name: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> psycopg.Cursor[Any]:
        return self._connection.execute(SQL[name].encode(), values)

    def _changed(self, cursor: psycopg.Cursor[Any]) -> int:
        """Return the number of rows that were changed, after waiting for the server."""
        settle(self._connection)
        return cursor.rowcount

    def _each(self, name: str, values: Sequence[Any]) -> psycopg.Cursor[Any]:
        cursor = self._connection.cursor()
        cursor.executemany(SQL[name].encode(), values)
        return cursor

    def lock_keys(self, keys: Iterable[tuple[str, str]]) -> None:
        """Wait until nobody else changes what waits of these functions and order keys, and keep others waiting."""
        self._run("lock_keys", (sorted({_number(*key) for key in keys}),))

    def announce(self) -> None:
        """Wake other processes when the transaction is stored."""
        self._run("notify", (self._process,))

    def advance(self, position: ConsumerPosition | PartitionDone, now: int) -> None:
        """Move the position of a consumer, or of a partition. Raises `LeaseLostError`."""
        if isinstance(position, PartitionDone):
            finish_within(self._connection, position)
        else:
            self._run("advance", (*position, now))

    def insert(self, rows: Sequence[Row]) -> Mapping[str, int]:
        """Add invocations, and return the number of new ones by function."""
        new: dict[str, int] = {}
        plain, ordered = (
            [row for row in rows if row[-1] is None],
            [row for row in rows if row[-1] is not None],
        )
        for name, some in (("insert", plain), ("insert_in_order", ordered)):
            if some:
                for function_id, number in self._run(name, _new(some)).fetchall():
                    new[function_id] = new.get(function_id, 0) + number
        return new

    def insert_again(self, row: Row, version: int) -> int:
        """Begin a finished invocation again if its result has a version."""
        return self._changed(self._run("insert_again", _new([row]) | {"version": version}))

    def count_masked(self, counts: Sequence[Mapping[str, Any]]) -> int:
        """Replace counts that are what ``before`` says, and return how many were."""
        return self._changed(self._each("count_masked", counts))

    def add_logs(self, rows: Sequence[Row]) -> None:
        self._run("add_logs", _columns(rows))

    def add_metrics(self, rows: Sequence[Row]) -> None:
        self._run("add_metrics", _columns(rows))

    def save_results(self, rows: Sequence[Row]) -> None:
        self._run("save_results", _columns(rows))

    def save_dead(self, rows: Sequence[Row]) -> None:
        self._each("save_dead", rows)

    def trim_dead(self, owners: Sequence[tuple[int, str]], most: int) -> int:
        """Keep the newest dead letters of each project and function, and return how many were deleted."""
        cursors = [
            self._run("trim_dead", {"project_id": project_id, "function_id": function_id, "most": most})
            for project_id, function_id in owners
        ]
        settle(self._connection)
        return sum(cursor.rowcount for cursor in cursors)

    def forget_dead(self, ids: Sequence[str]) -> None:
        self._run("forget_dead", {"ids": list(ids)})

    def advance_job(self, step: Mapping[str, Any]) -> bool:
        """Record a step of a job, and return whether the job runs and was where the step begins."""
        return self._changed(self._run("advance_job", step)) > 0

    def oldest(self, lane: Lane, most: int) -> list[ClaimedInvocation]:
        """Return the oldest available invocations of a lane, due or not, locked."""
        rows = self._run("oldest", {**lane._asdict(), "most": most}).fetchall()
        return list(map(claimed_of, rows))

    def complete(self, ids: Sequence[str], now: int) -> None:
        """End available invocations as completed."""
        self._run("complete", {"ids": list(ids), "now": now})

    def apply(self, outcomes: Sequence[InvocationOutcome], now: int) -> list[AppliedOutcome]:
        """Apply outcomes whose lock tokens are valid."""
        ending = [
            outcome.id
            for outcome in outcomes
            if outcome.status != "available" and not outcome.lock_token.endswith(NO_KEY)
        ]
        if ending and (keys := self._run("order_keys", {"ids": ending}).fetchall()):
            self.lock_keys(keys)
        values = {
            "ids": [outcome.id for outcome in outcomes],
            "tokens": [outcome.lock_token for outcome in outcomes],
            "statuses": [outcome.status for outcome in outcomes],
            "states": [outcome.state for outcome in outcomes],
            "due": [
                now if outcome.scheduled_at is None else to_micros(outcome.scheduled_at)
                for outcome in outcomes
            ],
            "priorities": [outcome.priority for outcome in outcomes],
            "now": now,
        }
        return [AppliedOutcome(*row) for row in self._run("apply", values).fetchall()]

    def unblock(self, keys: Sequence[tuple[str, str]], now: int) -> int:
        """Make the oldest unfinished invocation of each function id and order key available; return how many."""
        functions, order_keys = zip(*keys, strict=True)
        values = {"functions": list(functions), "order_keys": list(order_keys), "now": now}
        return len(self._run("unblock_next", values).fetchall())


def _new(rows: Sequence[Row]) -> dict[str, Any]:
    return dict(zip(_NEW, _columns(rows), strict=True))


def _columns(rows: Iterable[Row]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _number(*words: str) -> int:
    digest = blake2b("\0".join(words).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
