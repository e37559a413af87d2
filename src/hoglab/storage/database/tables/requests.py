"""Requests that came with an idempotency key, and how they were answered."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, String, Table, Text

from hoglab.storage.database.tables.base import metadata
from hoglab.storage.database.types import UtcTime

idempotency_key = Table(
    "idempotency_key",
    metadata,
    Column("user_id", Integer, ForeignKey("user.id"), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("fingerprint", String(64), nullable=False),  # of method, address and body
    Column("applied", Boolean, nullable=False),  # written in the transaction of the first change
    Column("status", Integer),  # null until it is answered
    Column("body", Text),  # encrypted: answers may hold new keys
    Column("created_at", UtcTime, nullable=False),
    Column("owner", String(36)),  # which start of a server carries it out
    Column("leased_until", UtcTime),  # when others may believe that it died
    Index("ix_idempotency_key_created", "created_at"),
)
