# ruff: noqa: S608 - statements are put together of constants
"""Adding invocations, and the turns of those who add and finish what has one order key."""

from __future__ import annotations

from collections import Counter as Counts
from hashlib import blake2b
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from hoglab.storage.database.postgres.session import settle
from hoglab.storage.database.types import to_micros

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import psycopg

    from hoglab.storage.invocations import NewInvocation

_TYPES = {
    "id": "b::text",
    "project_id": "b::integer",
    "function_id": "b::text",
    "parent_run_id": "b::text",
    "queue": "b::text",
    "priority": "b::smallint",
    "scheduled_at": "b::bigint",
    "log_offset": "b::bigint",
    "state": "b::bytea",
    "created_at": "b::bigint",
    "order_key": "s::text",
}
_NEW = ", ".join(_TYPES)
_ARRAYS = ", ".join(f"%({name}){type_}[]" for name, type_ in _TYPES.items())
_INSERT = f"""
WITH inserted AS (
    INSERT INTO invocation ({_NEW}, status)
    SELECT {_NEW}, 'available' FROM unnest({_ARRAYS}) WITH ORDINALITY AS new ({_NEW}, place) ORDER BY place
    ON CONFLICT (id) DO NOTHING RETURNING function_id
)
SELECT function_id, count(*) FROM inserted GROUP BY function_id
"""
_INSERT_IN_ORDER = f"""
WITH new AS MATERIALIZED (
    SELECT * FROM unnest({_ARRAYS}) WITH ORDINALITY AS new ({_NEW}, place)
    WHERE NOT EXISTS (SELECT 1 FROM invocation AS known WHERE known.id = new.id)
), inserted AS (
    INSERT INTO invocation ({_NEW}, status)
    SELECT {_NEW}, CASE WHEN EXISTS (
        SELECT 1 FROM invocation AS earlier WHERE earlier.function_id = new.function_id
            AND earlier.order_key = new.order_key AND earlier.finished_at IS NULL
    ) OR row_number() OVER (PARTITION BY function_id, order_key ORDER BY place) > 1 THEN 'held' ELSE 'available' END
    FROM new ORDER BY place
    ON CONFLICT (id) DO NOTHING RETURNING function_id
)
SELECT function_id, count(*) FROM inserted GROUP BY function_id
"""
_INSERT_AGAIN = f"""
INSERT INTO invocation ({_NEW}, status)
SELECT {_NEW}, CASE WHEN order_key IS NOT NULL AND EXISTS (
    SELECT 1 FROM invocation AS earlier WHERE earlier.function_id = new.function_id
        AND earlier.order_key = new.order_key AND earlier.finished_at IS NULL
) THEN 'held' ELSE 'available' END
FROM unnest({_ARRAYS}) AS new ({_NEW})
WHERE EXISTS (SELECT 1 FROM invocation_result WHERE invocation_id = new.id AND version = %(version)s)
ON CONFLICT (id) DO UPDATE SET status = excluded.status, finished_at = NULL, reset_count = 0,
    parent_run_id = excluded.parent_run_id, queue = excluded.queue, priority = excluded.priority,
    scheduled_at = excluded.scheduled_at, state = excluded.state, created_at = excluded.created_at,
    order_key = excluded.order_key
WHERE invocation.finished_at IS NOT NULL
"""
_TURN = "SELECT pg_advisory_xact_lock(key) FROM unnest(%s::bigint[]) AS key"


def insert(
    connection: psycopg.Connection[Any], invocations: Sequence[NewInvocation], now: int
) -> Counts[str]:
    """Add invocations, and return how many of each function are new."""
    new: Counts[str] = Counts()
    first = {invocation.id: invocation for invocation in reversed(invocations) if invocation.repeats is None}
    added = [invocation for invocation in invocations if first.get(invocation.id) is invocation]
    plain = [invocation for invocation in added if invocation.order_key is None]
    ordered = [invocation for invocation in added if invocation.order_key is not None]
    again = sorted(
        (invocation for invocation in invocations if invocation.repeats is not None), key=attrgetter("id")
    )
    if keys := [
        (invocation.function_id, invocation.order_key)
        for invocation in (*ordered, *again)
        if invocation.order_key is not None
    ]:
        take_turns(connection, keys)
    for statement, some in ((_INSERT, plain), (_INSERT_IN_ORDER, ordered)):
        if some:
            new.update(dict(connection.execute(statement.encode(), _columns(some, now)).fetchall()))
    for invocation in again:
        values = _columns([invocation], now) | {"version": invocation.repeats}
        cursor = connection.execute(_INSERT_AGAIN.encode(), values)
        settle(connection)
        new[invocation.function_id] += cursor.rowcount
    return +new


def _columns(invocations: Sequence[NewInvocation], now: int) -> dict[str, Any]:
    plain = (name for name in _TYPES if name not in ("scheduled_at", "created_at"))
    columns: dict[str, Any] = {
        name: [getattr(invocation, name) for invocation in invocations] for name in plain
    }
    columns["scheduled_at"] = [
        now if invocation.scheduled_at is None else to_micros(invocation.scheduled_at)
        for invocation in invocations
    ]
    columns["created_at"] = [now] * len(invocations)
    return columns


def take_turns(connection: psycopg.Connection[Any], keys: Iterable[tuple[str, str]]) -> None:
    """Wait until nobody else changes what waits of these functions and order keys, until the transaction is over."""
    connection.execute(_TURN, (sorted({_number(*key) for key in keys}),))


def _number(*words: str) -> int:
    digest = blake2b("\0".join(words).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
