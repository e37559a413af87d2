"""Daily points of metrics: computed, stored and scheduled; cached answers."""

from hoglab.analysis.timeseries import query_cache, query_status, store
from hoglab.analysis.timeseries.recalculations import Recalculations
from hoglab.analysis.timeseries.scheduler import ResultsRunner
from hoglab.analysis.timeseries.service import ResultsService

__all__ = [
    "Recalculations",
    "ResultsRunner",
    "ResultsService",
    "query_cache",
    "query_status",
    "store",
]
