"""Alembic's entry: runs revisions on the connection that `hoglab.storage.database.migrations` hands over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from alembic import context
from sqlalchemy.types import TypeDecorator

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext


def render_item(kind: str, item: Any, _: AutogenContext) -> str | Literal[False]:
    """Write our own column types as the plain types below them: a revision must not change with our code."""
    if kind == "type" and isinstance(item, TypeDecorator):
        return f"sa.{item.impl!r}"
    return False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=context.config.attributes["metadata"],
    render_item=render_item,
    render_as_batch=True,  # SQLite changes a table by copying it into a new one
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
