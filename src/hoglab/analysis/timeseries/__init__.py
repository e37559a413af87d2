"""Daily points of metrics: computed, stored and scheduled; cached answers."""

from hoglab.analysis.timeseries import query_cache, query_status, store
from hoglab.analysis.timeseries.recalculations import Recalculations
from hoglab.analysis.timeseries.scheduler import ResultsRunner
from hoglab.analysis.timeseries.service import ResultsConfig, ResultsService, stored_groups

__all__ = [
    "Recalculations",
    "ResultsConfig",
    "ResultsRunner",
    "ResultsService",
    "query_cache",
    "query_status",
    "store",
    "stored_groups",
]
