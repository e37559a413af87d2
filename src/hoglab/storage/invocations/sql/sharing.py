"""Rate limits and outages in tables that all processes share, by the clock of PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import sqlalchemy as sa

from hoglab.fairness.token_bucket import TokenBucket
from hoglab.storage.database import Rebuildable
from hoglab.storage.database.tables import destination_outage, function_pace
from hoglab.storage.database.types import now_micros
from hoglab.storage.database.upsert import upsert
from hoglab.storage.invocations.limits import Granted

if TYPE_CHECKING:
    from collections.abc import Collection

    from hoglab.storage.database import Database

OUTAGE_TOLD_FOR_S = 5.0
"""Time for which an outage that a process reported counts when it is not reported again."""


class RateLimits:
    """The token buckets of functions that limit how often they run. Blocking methods; they raise `DatabaseError`.

    Who takes tokens has the turn of those who write, so that nobody takes the same.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(self, function_id: str, wanted: int, *, per_s: float, size: float) -> Granted:
        """Take up to ``wanted`` whole tokens of a bucket that holds ``size`` at most and one at first."""
        row = function_pace.c
        with self._database.write(rebuildable=Rebuildable.FUNCTION_HEALTH) as tx:
            now = tx.execute(sa.select(now_micros())).scalar_one() / 1e6
            wanted_row = sa.select(row.tokens, row.filled_at).where(row.function_id == function_id)
            known: tuple[float, int] = tuple(tx.execute(wanted_row).one_or_none() or (1.0, round(now * 1e6)))
            bucket = TokenBucket(known[0], known[1] / 1e6, per_s, size).filled(now)
            number = max(0, min(wanted, int(bucket.tokens)))
            bucket = bucket.without(number)
            values = {"function_id": function_id, "tokens": bucket.tokens, "filled_at": round(now * 1e6)}
            upsert(tx.connection, function_pace, values, update=("tokens", "filled_at"))
        return Granted(number, bucket.wait_s(1.0))

    def give_back(self, function_id: str, number: int) -> None:
        """Put tokens back that were taken and not needed."""
        row = function_pace.c
        with self._database.write(rebuildable=Rebuildable.FUNCTION_HEALTH) as tx:
            tx.execute(
                sa.update(function_pace)
                .where(row.function_id == function_id)
                .values(tokens=row.tokens + number)
            )


class Outages:
    """The functions whose destination some process found away. Blocking methods; they raise `DatabaseError`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._process = str(uuid4())
        self._has_told = False

    def tell(self, function_ids: Collection[str]) -> None:
        """Replace what this process reported before; a report that is not repeated is forgotten."""
        if not function_ids and not self._has_told:
            return
        row = destination_outage.c
        with self._database.write(rebuildable=Rebuildable.FUNCTION_HEALTH) as tx:
            now = tx.execute(sa.select(now_micros())).scalar_one()
            old = sa.or_(row.process == self._process, row.seen_at < now - 2e6 * OUTAGE_TOLD_FOR_S)
            tx.execute(sa.delete(destination_outage).where(old))
            if function_ids:
                rows = [
                    {"process": self._process, "function_id": function_id, "seen_at": now}
                    for function_id in function_ids
                ]
                tx.execute(sa.insert(destination_outage), rows)
        self._has_told = bool(function_ids)

    def told(self) -> frozenset[str]:
        """Return the outages that all processes reported."""
        row = destination_outage.c
        recent = row.seen_at > now_micros() - int(OUTAGE_TOLD_FOR_S * 1e6)
        with self._database.read(durable=False) as connection:
            return frozenset(connection.scalars(sa.select(row.function_id).where(recent).distinct()))
