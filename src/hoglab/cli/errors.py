"""Errors that stop a command in a way that the operator can mend."""

from __future__ import annotations


class OperatorError(Exception):
    """One line that says what is wrong and, where it helps, what to do."""
