"""Errors of the accounts room."""

from __future__ import annotations


class AccountError(Exception):
    """A refusal in one line, fit for operators and for the wire. ``attr`` names the field it is about."""

    def __init__(self, message: str, attr: str | None = None) -> None:
        super().__init__(message)
        self.attr = attr
