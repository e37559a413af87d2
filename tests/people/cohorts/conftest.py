"""Flags and cohorts behind the real application; cohorts are calculated when the test says so."""

from tests.flags.conftest import prepared, server

__all__ = ["prepared", "server"]  # fixtures
