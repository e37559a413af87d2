"""Things that wait, of several functions, and are served one function after the other."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """However many a function has in it, what comes of another is behind one of each function at most."""

    def __init__(self) -> None:
        self._by_function: OrderedDict[str, deque[T]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, function_id: str, one: T) -> None:
        self._by_function.setdefault(function_id, deque()).append(one)
        self._count += 1

    def popleft(self) -> T:
        """The first one of the function whose turn it is. Raises `KeyError` when nothing waits."""
        function_id, waiting = self._by_function.popitem(last=False)
        one = waiting.popleft()
        self._count -= 1
        if waiting:
            self._by_function[function_id] = waiting  # to the end of the line
        return one

    def pop_first(self, may: Callable[[T], bool]) -> T | None:
        """The first one of the function whose turn it is among those whose first one may go; None when none may."""
        for function_id, waiting in self._by_function.items():
            if may(waiting[0]):
                self._by_function.move_to_end(function_id, last=False)
                return self.popleft()
        return None

    def take_out(self, function_id: str) -> Collection[T]:
        """Everything of one function, in order."""
        taken = self._by_function.pop(function_id, ())
        self._count -= len(taken)
        return taken

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._by_function.values())
