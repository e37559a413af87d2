"""The rows of a table as they are stored, the same on every engine: read in the order of their keys, written, compared.

Values are those below the types of columns: a moment is a number, JSON the text that was written. NUL in texts, which
PostgreSQL cannot keep, becomes U+FFFD on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator, TypeEngine

if TYPE_CHECKING:
    from sqlalchemy import Connection

T = TypeVar("T")
Row = tuple[Any, ...]
BATCH_ROWS = 1_000
BATCH_BYTES = 4 * 1024 * 1024
FETCH_ROWS = 200
NUL_STAND_IN = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table, its columns below their types, and the names of those that put its rows in order."""

    name: str
    columns: tuple[sa.Column[Any], ...]
    key: tuple[str, ...]
    counts_up: bool
    """Whether its key is given by the engine, and never used again."""

    @classmethod
    def of(cls, table: sa.Table) -> StoredTable:
        """Return rows of invocations are in the order of enqueueing, others in that of their primary keys."""
        system = tuple(column.name for column in table.columns if column.system)
        key = system or tuple(column.name for column in table.primary_key)
        counts_up = bool(system) or table.dialect_options["sqlite"]["autoincrement"] is True
        return cls(table.name, tuple(table.columns), key, counts_up)

    def _relation(self) -> sa.TableClause:
        return sa.table(self.name, *(sa.column(column.name, _stored(column.type)) for column in self.columns))

    def rows(
        self, connection: Connection, after: Row | None = None, *, newest_first: bool = False
    ) -> Iterator[Row]:
        """Yield the rows in order, or from its end; ``after``: those whose keys are larger."""
        relation = self._relation()
        keys = [relation.c[name] for name in self.key]
        query = sa.select(*relation.c).order_by(*(key.desc() if newest_first else key for key in keys))
        if after is not None:
            query = query.where(sa.tuple_(*keys) > sa.tuple_(*map(sa.literal, after)))
        streamed = connection.execution_options(stream_results=True, yield_per=FETCH_ROWS).execute(query)
        for row in streamed:
            yield tuple(_without_nul(cell) for cell in row)

    def last_key(self, connection: Connection) -> Row | None:
        """Return the largest; None without rows."""
        relation = self._relation()
        keys = [relation.c[name] for name in self.key]
        row = connection.execute(sa.select(*keys).order_by(*(key.desc() for key in keys)).limit(1)).first()
        return None if row is None else tuple(row)

    def count(self, connection: Connection) -> int:
        return int(connection.execute(sa.select(sa.func.count()).select_from(self._relation())).scalar_one())

    def write(self, connection: Connection, rows: Sequence[Row]) -> None:
        names = [column.name for column in self.columns]
        connection.execute(sa.insert(self._relation()), [dict(zip(names, row, strict=True)) for row in rows])

    def digest(self, connection: Connection) -> Digest:
        """Return digest by which two tables with the same rows are known."""
        count, digest_sum = 0, 0
        for row in self.rows(connection):
            count += 1
            digest_sum ^= int.from_bytes(
                blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=16).digest()
            )
        return Digest(count, digest_sum)


@dataclass(frozen=True, slots=True)
class Digest:
    """The number of rows, and the exclusive or of their digests."""

    rows: int
    digest: int


def size_of(row: Row) -> int:
    """Return approximate size of a row in bytes: its texts and bytes."""
    return sum(len(cell) for cell in row if isinstance(cell, (bytes, str)))


def batches(
    items: Iterable[T], size_of: Callable[[T], int], *, most: int = BATCH_ROWS, most_bytes: int = BATCH_BYTES
) -> Iterator[list[T]]:
    """Yield items in batches; a batch ends at a number of items, or when its size reaches a number of bytes.

    Where a part ends follows from where it begins.
    """
    batch: list[T] = []
    size = 0
    for item in items:
        batch.append(item)
        size += size_of(item)
        if len(batch) >= most or size >= most_bytes:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _stored(type_: TypeEngine[Any]) -> TypeEngine[Any]:
    return type_.impl_instance if isinstance(type_, TypeDecorator) else type_


def _without_nul(cell: Any) -> Any:
    if isinstance(cell, str) and "\0" in cell:
        return cell.replace("\0", NUL_STAND_IN)
    return bytes(cell) if isinstance(cell, memoryview) else cell
