"""An index of the emails, names and distinct ids of persons by their parts, three letters each, where there can be one.

The extension ``pg_trgm`` makes it. Without that, a search looks at the persons of the project one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Connection

LEAST_CHARACTERS = 3
"""Shorter texts are looked up in no index."""

# Values of a stored JSON document as text. JSON may have NUL in it, which PostgreSQL's own types refuse.
_FUNCTION = r"""
CREATE OR REPLACE FUNCTION {schema}.json_text(document text, name text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (
        CASE WHEN strpos(document, '\u0000') = 0 THEN document
        ELSE regexp_replace(document, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g') END
    )::json ->> name
$$
"""
_EXTENSIBLE = """
SELECT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'pg_trgm') OR (
    EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'pg_trgm')
    AND has_database_privilege(current_database(), 'CREATE')
)
"""
_INDEXED = (
    "CREATE EXTENSION IF NOT EXISTS pg_trgm WITH SCHEMA public",
    """CREATE INDEX IF NOT EXISTS ix_person_search ON person USING gin (
        json_text(properties, 'email') gin_trgm_ops, json_text(properties, 'name') gin_trgm_ops
    )""",
    """CREATE INDEX IF NOT EXISTS ix_person_distinct_id_search
        ON person_distinct_id USING gin (distinct_id gin_trgm_ops)""",
)
_IS_INDEXED = text("SELECT to_regclass('ix_person_search') IS NOT NULL")
_FOUND = text("""
SELECT id FROM person
WHERE json_text(properties, 'email') ILIKE :pattern OR json_text(properties, 'name') ILIKE :pattern
UNION
SELECT person_id FROM person_distinct_id WHERE distinct_id ILIKE :pattern
LIMIT :most
""")


def make(connection: Connection, schema: str) -> None:
    """Make the indexes in a transaction, unless there are any or there cannot be."""
    if connection.exec_driver_sql("SELECT to_regclass('person')").scalar() is None:
        return
    connection.exec_driver_sql(_FUNCTION.format(schema=schema))
    if connection.exec_driver_sql(_EXTENSIBLE).scalar():
        for statement in _INDEXED:
            connection.exec_driver_sql(statement)


def find(connection: Connection, wanted: str, most: int) -> tuple[list[int], int | None] | None:
    """Return row ids of all persons who have a text in their email, name or a distinct id.

    The result is None: too many, or no index.
    """
    if len(wanted) < LEAST_CHARACTERS or not connection.execute(_IS_INDEXED).scalar():
        return None
    escaped = wanted.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    row_ids = list(connection.scalars(_FOUND, {"pattern": f"%{escaped}%", "most": most + 1}))
    return (row_ids, None) if len(row_ids) <= most else None


def is_full(_: Connection) -> bool:
    """Return True: an index of the tables has every row."""
    return True


def fill(_: Connection) -> bool:
    """Do nothing: an index of the tables has every row."""
    return False


def reset(_: Connection) -> None:
    """Do nothing: old names of persons leave the index with their rows."""
