"""Incremental view maintenance: what is kept of events for a question, brought up to date by what came in since."""

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
