"""Keeping the bucketing of an anonymous visitor who becomes known (spec: sdk-wire 3.12)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import sqlalchemy as sa

from hoglab.flags.lookups import Run, hash_keys_of, person_id_of, within
from hoglab.storage.database.tables import flag_hash_key_override

if TYPE_CHECKING:
    from hoglab.storage.database import Database


def is_remembered(
    run: Run, project_id: int, distinct_ids: Collection[str], flag_keys: Collection[str]
) -> bool:
    """Whether every person behind the distinct ids has a stored bucketing id for every flag."""
    return not _missing(run, project_id, distinct_ids, flag_keys)


def remember(
    database: Database,
    project_id: int,
    distinct_ids: Collection[str],
    flag_keys: Collection[str],
    hash_key: str,
) -> None:
    """Give the persons behind the distinct ids a bucketing id for the flags for which they have none.

    Those that have one keep it. Writes, so it may have to wait for other writers.
    """
    with database.write() as tx:
        # Looked at inside the transaction: persons may have been merged, or a twin of this request been quicker.
        missing = _missing(within(tx.connection), project_id, distinct_ids, flag_keys)
        if missing:
            rows = [
                {
                    "project_id": project_id,
                    "person_id": person_id,
                    "feature_flag_key": flag_key,
                    "hash_key": hash_key,
                }
                for person_id, flag_key in sorted(missing)
            ]
            tx.execute(sa.insert(flag_hash_key_override), rows)


def _missing(
    run: Run, project_id: int, distinct_ids: Collection[str], flag_keys: Collection[str]
) -> set[tuple[int, str]]:
    """Pairs of person and flag without a stored bucketing id."""
    missing: set[tuple[int, str]] = set()
    for distinct_id in distinct_ids:
        person_id = person_id_of(run, project_id, distinct_id)
        if person_id is not None:
            stored = hash_keys_of(run, project_id, person_id)
            missing.update((person_id, key) for key in flag_keys if key not in stored)
    return missing
