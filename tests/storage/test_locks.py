"""Turns of writers: in order, with a time limit, and shared by everybody who opens the same file."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from hoglab.storage.database import DatabaseBusyError, NestedWriteError
from hoglab.storage.database.locks import WriteLock, write_lock


def wait_until_queued(lock: WriteLock, count: int) -> None:
    """Return once so many threads stand at the lock."""
    done = threading.Event()
    while len(lock._gates) < count:
        done.wait(0.001)


def test_turns_come_in_the_order_of_asking() -> None:
    lock, order, threads = WriteLock("x"), [], []

    def work(number: int) -> None:
        with lock.turn():
            order.append(number)

    with lock.turn():
        for number in range(5):
            threads.append(threading.Thread(target=work, args=(number,)))
            threads[-1].start()
            wait_until_queued(lock, number + 1)
    with lock.turn():  # asked last, comes last, although this thread never let go of the processor
        order.append(99)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4, 99]


def test_one_who_gave_up_is_not_handed_the_lock() -> None:
    lock = WriteLock("the file")
    refused: list[str] = []

    def impatient() -> None:
        try:
            with lock.turn(0.001):
                pytest.fail("it was not free")
        except DatabaseBusyError as error:
            refused.append(str(error))

    with lock.turn():
        thread = threading.Thread(target=impatient)
        thread.start()
        thread.join()
    assert refused == ["the file was kept locked by another thread for 0.001 s"]
    with lock.turn(0.001):
        pass


def test_only_one_at_a_time_is_inside() -> None:
    lock, inside, most = WriteLock("x"), 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(300):
            with lock.turn():
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == (0, 1)


def test_a_turn_inside_a_turn_is_refused() -> None:
    lock = WriteLock("x")
    with lock.turn(), pytest.raises(NestedWriteError), lock.turn():
        pass
    with lock.turn():
        pass


def test_the_same_file_has_the_same_lock(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    first = write_lock(tmp_path / "a.db")
    assert write_lock(tmp_path / "x" / ".." / "a.db") is first
    assert write_lock(tmp_path / "link.db") is first
    assert write_lock(tmp_path / "b.db") is not first
