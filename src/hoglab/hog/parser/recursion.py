"""Room on Python's stack.

The parser, the compilers and compiled programs recurse as deep as their limits allow, which is more than Python's
default allows. Python functions called by Python functions do not use the C stack, so room costs only memory.
"""

from __future__ import annotations

import sys

STACK_FRAMES = 8_000
"""Python frames that the deepest allowed text and the deepest allowed calls may need, with a margin."""


def ensure_stack() -> None:
    """Make room for deep texts and deep recursion. The limit of the process is raised, never lowered."""
    if sys.getrecursionlimit() < STACK_FRAMES:
        sys.setrecursionlimit(STACK_FRAMES)
