"""Questions answered on the event store: resolved, run with limits, computed together from one scan."""

from hoglab.analysis.execution.behaviour import performers, performers_on_request
from hoglab.analysis.execution.computer import MULTIPLE_VARIANT, Computer, Groups
from hoglab.analysis.execution.statement_runner import StatementRunner, explained_failures

__all__ = [
    "MULTIPLE_VARIANT",
    "Computer",
    "Groups",
    "StatementRunner",
    "explained_failures",
    "performers",
    "performers_on_request",
]
