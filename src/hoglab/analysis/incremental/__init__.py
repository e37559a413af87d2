"""Incremental view maintenance: the materialized parts of answers, updated with the new events."""

from hoglab.analysis.incremental.aggregate_cache import AggregateCache, BusyError, CacheLimits
from hoglab.analysis.incremental.materialization import (
    Materialization,
    key_of,
    materialized,
    materialized_exposures,
)

__all__ = [
    "AggregateCache",
    "BusyError",
    "CacheLimits",
    "Materialization",
    "key_of",
    "materialized",
    "materialized_exposures",
]
