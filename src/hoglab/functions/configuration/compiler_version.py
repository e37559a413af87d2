"""Version of the compiler that something stored was made by."""

from __future__ import annotations

from typing import Final

COMPILER_VERSION: Final = 1
"""Stored beside what is compiled from a function; functions that another version made are compiled anew at start.

To be raised whenever the same function becomes other bytecode or JavaScript. A test compares what fixed sources become
with what this version made of them, and says so when it differs.
"""
