"""Several statements of one reader as one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from hoglab.storage.event_store import EventStoreUnavailableError, QueryError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hoglab.storage.event_store import Reader

_log = structlog.get_logger(__name__)


@contextmanager
def transaction(reader: Reader) -> Iterator[None]:
    """Begin a transaction: the block reads one state of the store, and writes as a whole or not at all."""
    reader.execute("BEGIN TRANSACTION")
    try:
        yield
        reader.execute("COMMIT")
    except BaseException:
        try:
            reader.execute("ROLLBACK")
        except (QueryError, EventStoreUnavailableError):
            _log.debug("transaction_not_rolled_back")  # the engine has done so itself
        raise
