"""A queue of things of several keys, which are served one key after the other."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Iterator
from itertools import chain
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Queue in which keys take turns: a new key's first item waits for at most one item of each other key."""

    def __init__(self) -> None:
        self._by_key: OrderedDict[Hashable, deque[T]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, key: Hashable, item: T) -> None:
        self._by_key.setdefault(key, deque()).append(item)
        self._count += 1

    def popleft(self) -> T:
        """Remove and return the first item of the key whose turn it is. Raises `KeyError` when nothing waits."""
        key, waiting = self._by_key.popitem(last=False)
        item = waiting.popleft()
        self._count -= 1
        if waiting:
            self._by_key[key] = waiting  # to the end of the line
        return item

    def pop_first(self, may: Callable[[T], bool]) -> T | None:
        """Remove and return the first item that ``may`` go, of the first key in turn that has one; None without one."""
        for key, waiting in self._by_key.items():
            if may(waiting[0]):
                self._by_key.move_to_end(key, last=False)
                return self.popleft()
        return None

    def take_out(self, key: Hashable) -> Collection[T]:
        """Remove and return all items of a key, in order."""
        taken = self._by_key.pop(key, ())
        self._count -= len(taken)
        return taken

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._by_key.values())
