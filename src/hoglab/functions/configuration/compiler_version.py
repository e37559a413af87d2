"""Version of the compiler that made a stored form."""

from __future__ import annotations

from typing import Final

COMPILER_VERSION: Final = 4
"""Number stored beside the compiled form of a function; functions with another number are compiled again at start.

It must be raised whenever the same function compiles to other bytecode or JavaScript. A test compares the compiled
form of fixed sources with that of this version, and says so when they differ.
"""
