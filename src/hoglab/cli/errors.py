"""Errors that stop a command and that the operator can correct."""

from __future__ import annotations


class OperatorError(Exception):
    """One line that says what is wrong and, where it helps, what to do."""
