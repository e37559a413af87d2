"""Transactions of processes that stand still while the server waits for them.

`idle_in_transaction_session_timeout` ends a transaction that waits for its next statement. It does not run inside of a
pipeline, nor while the server sends rows that nobody reads: there a process that was stopped, or whose machine is gone,
would keep its locks for as long as its connection lasts. Processes that wait for such locks end the transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from hoglab.storage.database.postgres import driver

if TYPE_CHECKING:
    import psycopg

_logger = structlog.get_logger(__name__)

# A role may end its own sessions. Transactions that only read lock no rows: they may wait for a slow client.
_END = b"""
SELECT pg_terminate_backend(pid) FROM pg_stat_activity AS session
WHERE usename = current_user AND datname = current_database()
    AND application_name = current_setting('application_name')
    AND state = 'active' AND wait_event_type = 'Client'
    AND greatest(xact_start, query_start) < clock_timestamp() - make_interval(secs => %s)
    AND EXISTS (
        SELECT FROM pg_locks
        WHERE pg_locks.pid = session.pid AND mode IN ('RowShareLock', 'RowExclusiveLock')
    )
"""


def end_stuck(connection: psycopg.Connection[Any]) -> int:
    """End writing transactions that have waited for their process for `IDLE_IN_TRANSACTION_TIMEOUT_S`; return how many.

    Raises `psycopg.Error`.
    """
    ended = connection.execute(_END, (driver.IDLE_IN_TRANSACTION_TIMEOUT_S,)).fetchall()
    if ended:
        _logger.warning("stuck_transactions_ended", count=len(ended))
    return len(ended)
