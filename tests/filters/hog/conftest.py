"""Makes room on the stack before Hypothesis looks at the limit, as compiling Hog would do in the middle of a test."""

from __future__ import annotations

from hoglab.hog.program import ensure_stack

ensure_stack()
