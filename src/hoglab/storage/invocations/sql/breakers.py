"""The circuit breakers of functions in the table ``watcher_state``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import sqlalchemy as sa

from hoglab.storage.database import Rebuildable
from hoglab.storage.database.tables import watcher_state
from hoglab.storage.database.upsert import upsert
from hoglab.storage.invocations.limits import BreakerState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from hoglab.storage.database import Database

_COLUMNS = [watcher_state.c[name] for name in BreakerState.__dataclass_fields__]


class BreakerStates:
    """Store of circuit breakers' states. Blocking methods, called from any thread; they raise `DatabaseError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self) -> list[BreakerState]:
        """Return the circuit breakers of all functions that have one."""
        with self._database.read() as connection:
            return [BreakerState(*row) for row in connection.execute(sa.select(*_COLUMNS))]

    def change(
        self,
        function_ids: Collection[str],
        decide: Callable[[Mapping[str, BreakerState]], Sequence[BreakerState]],
    ) -> None:
        """Replace the states of functions with what ``decide`` returns for them; nobody changes them meanwhile."""
        some = sa.select(*_COLUMNS).where(watcher_state.c.function_id.in_(list(function_ids)))
        with self._database.write(rebuildable=Rebuildable.FUNCTION_HEALTH) as tx:
            known = {row[0]: BreakerState(*tuple(row)) for row in tx.execute(some)}
            if states := decide(known):
                rows = [asdict(state) for state in states]
                upsert(tx.connection, watcher_state, rows, update=[column.name for column in _COLUMNS[1:]])
