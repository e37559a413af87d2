"""A check of what clients of several servers saw at the same time: could one server have answered that, one by one?

Each operation took effect at one moment between its call and its answer, if there is an order of such moments in
which a model that knows nothing of concurrency gives the same answers. The search tries such orders, depth first, and
remembers what it tried. It is for histories of some dozens of operations of which few overlap.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

State = Hashable


@dataclass(frozen=True)
class Operation:
    """What a client asked, what it was answered, and when it did not wait yet and did not wait any more."""

    asked: Any
    answer: Any
    called_at: float
    answered_at: float


Model = Callable[[Any, Any, Any], Iterator[State]]
"""Gives the states that may follow a state, something asked and its answer; none when that cannot be the answer."""


class History:
    """Operations as several threads note them."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def note(self, asked: Any, ask: Callable[[], Any]) -> Any:
        """Carry an operation out; its answer."""
        called_at = time.monotonic()
        answer = ask()
        self.operations.append(Operation(asked, answer, called_at, time.monotonic()))
        return answer


def is_linearizable(operations: Sequence[Operation], state: State, model: Model) -> bool:
    """Whether some order of the operations fits their answers and the times of clients."""
    tried: set[tuple[int, State]] = set()
    everything = (1 << len(operations)) - 1
    stack = [(0, state)]
    while stack:
        done, state = stack.pop()
        if done == everything:
            return True
        if (done, state) in tried:
            continue
        tried.add((done, state))
        left = [(place, each) for place, each in enumerate(operations) if not done >> place & 1]
        first_answer = min(each.answered_at for _, each in left)
        for place, each in left:
            if each.called_at <= first_answer:
                stack += [(done | 1 << place, after) for after in model(state, each.asked, each.answer)]
    return False


def at_once(*work: Callable[[], object]) -> None:
    """Carry several things out in threads that begin at the same time. Raises what one of them raised."""
    barrier = threading.Barrier(len(work))

    def run(each: Callable[[], object]) -> None:
        barrier.wait(60)
        each()

    with ThreadPoolExecutor(len(work)) as pool:
        for running in [pool.submit(run, each) for each in work]:
            running.result(120)
