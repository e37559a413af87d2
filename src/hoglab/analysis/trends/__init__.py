"""Trends: counts of events, or of people with such an event, by minute, hour or day."""

from hoglab.analysis.trends.answer import trends_answer
from hoglab.analysis.trends.query import read_trends

__all__ = [
    "read_trends",
    "trends_answer",
]
