"""Keeping the bucketing of an anonymous visitor who becomes known (spec: sdk-wire 3.12)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa

from hoglab.flags.matching.lookups import StoredHashKeys, hash_keys_of, merge_hash_keys, within
from hoglab.storage.database.tables import flag_hash_key_override

if TYPE_CHECKING:
    from hoglab.storage.database import Database


def missing(stored: Sequence[StoredHashKeys], flag_keys: Collection[str]) -> list[tuple[int, str]]:
    """Return pairs of person and flag without a stored bucketing id."""
    pairs = {(person.person_id, key) for person in stored for key in flag_keys if key not in person.by_flag}
    return sorted(pairs)


def remember(
    database: Database,
    project_id: int,
    distinct_ids: Collection[str],
    flag_keys: Collection[str],
    hash_key: str,
) -> dict[str, str]:
    """Give the persons behind the distinct ids a bucketing id for the flags for which they have none.

    Persons keep the ids that they have. Returns the bucketing ids that are stored now, by flag. This writes, so it
    may have to wait for other writers.
    """
    with database.write() as tx:
        run = within(tx.connection)
        # Looked at inside the transaction: persons may have been merged, or an identical request been faster.
        pairs = missing(hash_keys_of(run, project_id, distinct_ids), flag_keys)
        if pairs:
            rows = [
                {
                    "project_id": project_id,
                    "person_id": person_id,
                    "feature_flag_key": flag_key,
                    "hash_key": hash_key,
                }
                for person_id, flag_key in pairs
            ]
            tx.execute(sa.insert(flag_hash_key_override), rows)
        return merge_hash_keys(hash_keys_of(run, project_id, distinct_ids))
