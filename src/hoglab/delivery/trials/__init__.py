"""Trials of functions: test runs, test cases, sample events."""

from hoglab.delivery.trials.cases import TestCases
from hoglab.delivery.trials.runs import MissingEventError, TestRuns
from hoglab.delivery.trials.samples import Samples

__all__ = [
    "MissingEventError",
    "Samples",
    "TestCases",
    "TestRuns",
]
