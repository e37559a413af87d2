"""Constant patterns of `like` and `=~`, checked when a text is compiled."""

from __future__ import annotations

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.coerce import like_matcher
from hoglab.hog.rt.regex import compile_regex


def pattern_problem(op: str, pattern: str) -> str | None:
    """Return the error message for a constant pattern of the comparison `op`; None when it compiles."""
    try:
        if "~" in op:
            compile_regex(pattern, op.endswith("*"))
        else:
            like_matcher(pattern, "ilike" in op)
    except HogRuntimeError as error:
        return error.message
    return None
