"""Dynamic thresholds: how much of something limited one owner and its members may have (Choudhury, Hahne 1998).

An owner (a project) may have `OWNER_SHARE` times what is free, a member (a function of it) as much as its owner may
still take. So an owner that takes all it can get leaves room: n members of an owner get an n+1st of its share each,
and the last share is always free for another.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TypeVar

T = TypeVar("T")

OWNER_SHARE = 3
"""Multiple of the free places that an owner may have: an owner that is alone leaves a quarter free."""


def room_of_owner(free: int, has: int) -> float:
    """Return the number of further places for an owner that ``has`` some, while ``free`` are free."""
    return (OWNER_SHARE * free - has) / (OWNER_SHARE + 1)


def more_of_member(has: int, room: float) -> int:
    """Return the number of further places for a member that ``has`` some, with ``room`` for its owner."""
    if not has and room > 0:
        return max(1, math.ceil(room / 2))
    return max(0, math.ceil((room - has) / 2))


def one_less(tally: Counter[T], key: T) -> None:
    """Count a key down, and delete it at zero."""
    tally[key] -= 1
    if not tally[key]:
        del tally[key]
