"""How much of something limited one project and one function may have: dynamic thresholds (Choudhury and Hahne 1998).

A project may have `PROJECT_SHARE` times what is free, a function as much as its project may still take. So whoever
takes all that he can get leaves room: n functions of a project end up with an n+1st of its share each, and the last
share is always there for another.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TypeVar

T = TypeVar("T")

PROJECT_SHARE = 3
"""One that is alone leaves a quarter, however many functions it has."""


def room_of_project(free: int, has: int) -> float:
    """How many more a project may take that ``has`` so many, while so many are free."""
    return (PROJECT_SHARE * free - has) / (PROJECT_SHARE + 1)


def more_of_function(has: int, room: float) -> int:
    """How many more a function may take that ``has`` so many, with so much ``room`` for its project."""
    if not has and room > 0:
        return max(1, math.ceil(room / 2))
    return max(0, math.ceil((room - has) / 2))


def one_less(tally: Counter[T], one: T) -> None:
    """Count one down, and forget who has none."""
    tally[one] -= 1
    if not tally[one]:
        del tally[one]
