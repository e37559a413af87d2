"""The endpoints of results: queries, daily points, recalculations, health."""

from hoglab.analysis.api import routes
from hoglab.analysis.api.live import LiveResults
from hoglab.analysis.api.schemas import QueryBody

__all__ = [
    "LiveResults",
    "QueryBody",
    "routes",
]
