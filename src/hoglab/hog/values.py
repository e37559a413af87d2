"""Values of programs outside of programs: compared, shown, converted and paid for as operators do it.

Parts that embed the language and have to agree with it (filters, templates, logs) use these functions.
"""

from hoglab.hog.rt.coerce import eq, ge, gt, ilike, le, like, like_matcher, lt, to_number
from hoglab.hog.rt.context import (
    LONG,
    TRUNCATED,
    NeedsBudgetError,
    charge,
    free_of_charge,
    memory_text,
    without_budget,
)
from hoglab.hog.rt.dates import read_instant
from hoglab.hog.rt.json_text import stringify
from hoglab.hog.rt.numbers import format_number
from hoglab.hog.rt.printing import is_truthy, js_string, repr_value, to_string
from hoglab.hog.rt.regex import compile_regex
from hoglab.hog.rt.values import HogDate, HogDateTime

__all__ = [
    "LONG",
    "TRUNCATED",
    "HogDate",
    "HogDateTime",
    "NeedsBudgetError",
    "charge",
    "compile_regex",
    "eq",
    "format_number",
    "free_of_charge",
    "ge",
    "gt",
    "ilike",
    "is_truthy",
    "js_string",
    "le",
    "like",
    "like_matcher",
    "lt",
    "memory_text",
    "read_instant",
    "repr_value",
    "stringify",
    "to_number",
    "to_string",
    "without_budget",
]
