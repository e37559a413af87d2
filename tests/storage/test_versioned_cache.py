"""The cache of what is made of a project's data: up to date after every change, made once by one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.waiting import PATIENCE_S

from hoglab.storage.database import Database, Topic
from hoglab.storage.database.changes import State
from hoglab.storage.versioned_cache import Kept, VersionedCache


class Loads:
    """Makes numbers that rise, and notes of which projects, with what was there before."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int | None]] = []

    def of(self, project_id: int) -> Callable[[State, Kept[int] | None], int]:
        def load(_state: State, before: Kept[int] | None) -> int:
            self.calls.append((project_id, None if before is None else before.value))
            return len(self.calls)

        return load


@pytest.fixture
def loads() -> Loads:
    return Loads()


@pytest.fixture
def cache(database: Database) -> Iterator[VersionedCache[int]]:
    return VersionedCache(database, ["flags", "cohorts"])


def change(database: Database, topic: Topic, project_id: int) -> None:
    with database.write() as tx:
        tx.changed(topic, project_id)


def test_a_value_is_made_again_after_a_change_of_its_own_topics_only(
    database: Database, cache: VersionedCache[int], loads: Loads
) -> None:
    def get(project_id: int) -> int:
        return cache.get(project_id, loads.of(project_id))

    assert [get(1), get(1), get(2)] == [1, 1, 2]
    change(database, "cohorts", 1)
    assert cache.current(1) is None
    assert (kept := cache.last(1)) is not None
    assert kept.value == 1
    assert [get(1), get(1), get(2)] == [3, 3, 2]
    change(database, "people", 1)
    change(database, "flags", 3)
    assert [get(1), get(2)] == [3, 2]
    assert loads.calls == [(1, None), (2, None), (1, 1)]
    assert cache.values() == [3, 2]


def test_a_change_while_a_value_is_made_is_noticed(database: Database, cache: VersionedCache[int]) -> None:
    def load(state: State, _before: object) -> int:
        if state == (0, 0):
            change(database, "flags", 1)
        return sum(state)

    assert cache.get(1, load) == 0
    assert cache.current(1) is None
    assert cache.get(1, load) == 1
    assert cache.current(1) is not None


def test_what_was_kept_stays_when_it_cannot_be_made_again(
    database: Database, cache: VersionedCache[int], loads: Loads
) -> None:
    def fail(*_: object) -> int:
        raise OSError("away")

    with pytest.raises(OSError, match="away"):
        cache.get(1, fail)
    assert cache.last(1) is None
    assert cache.get(1, loads.of(1)) == 1
    change(database, "flags", 1)
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            cache.get(1, fail)
    assert cache.values() == [1]
    assert cache.get(1, loads.of(1)) == 2


def test_what_else_a_value_depends_on_is_compared(cache: VersionedCache[int], loads: Loads) -> None:
    assert cache.get(1, loads.of(1), "UTC") == cache.get(1, loads.of(1), "UTC") == 1
    assert cache.current(1, "Europe/Rome") is None
    assert cache.get(1, loads.of(1), "Europe/Rome") == 2
    assert cache.current(1, "UTC") is None


def test_one_thread_makes_a_value_and_the_others_wait_for_it(
    cache: VersionedCache[int], loads: Loads
) -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow(state: State, before: Kept[int] | None) -> int:
        began.set()
        assert go_on.wait(PATIENCE_S)
        return loads.of(1)(state, before)

    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(cache.get, 1, slow)
        assert began.wait(PATIENCE_S)
        others = [threads.submit(cache.get, 1, slow) for _ in range(7)]
        assert cache.get(2, loads.of(2)) == 1  # nobody waits for another project
        go_on.set()
        assert {each.result(PATIENCE_S) for each in (first, *others)} == {2}
    assert loads.calls == [(2, None), (1, None)]
