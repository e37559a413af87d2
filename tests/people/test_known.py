"""Persons that are remembered between reads: nobody is ever told of an older state than the database has."""

from __future__ import annotations

import threading

import pytest

from hoglab.people.person_cache import PersonCache, StoredPerson


def person(row_id: int = 1, **properties) -> StoredPerson:
    return StoredPerson(row_id, properties, 0)


@pytest.fixture
def known():
    known = PersonCache()
    known.keep(1, "ann", person(plan="free"), 15, known.version)
    return known


def test_a_person_is_known_by_each_of_its_ids_in_its_project(known):
    known.keep(1, "ann-laptop", person(plan="free"), 15, known.version)
    assert known.get(1, "ann").properties == {"plan": "free"}
    assert known.get(1, "ann-laptop") is not None
    assert known.get(1, "bob") is None
    assert known.get(2, "ann") is None


def test_a_change_makes_a_person_forgotten_by_every_id(known):
    known.keep(1, "ann-laptop", person(plan="free"), 15, known.version)
    known.keep(1, "bob", person(2), 2, known.version)
    with known.changing() as touch:
        touch([1])
    assert known.get(1, "ann") is None
    assert known.get(1, "ann-laptop") is None
    assert known.get(1, "bob") is not None


def test_who_is_being_changed_is_not_kept(known):
    with known.changing() as touch:
        touch([1])
        known.keep(1, "ann", person(plan="free"), 15, known.version)
        assert known.get(1, "ann") is None
        known.keep(1, "bob", person(2), 2, known.version)
        assert known.get(1, "bob") is not None  # nobody touches bob


def test_what_was_read_before_a_change_ended_is_not_kept_after_it(known):
    version = known.version  # a reader's transaction begins
    with known.changing() as touch:
        touch([1])
    known.keep(1, "ann", person(plan="free"), 15, version)
    assert known.get(1, "ann") is None
    known.keep(1, "ann", person(plan="pro"), 14, known.version)
    assert known.get(1, "ann").properties == {"plan": "pro"}


def test_a_change_that_fails_ends_too(known):
    def fail() -> None:
        with known.changing() as touch:
            touch([1])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    known.keep(1, "ann", person(plan="free"), 15, known.version)
    assert known.get(1, "ann") is not None


def test_changes_may_overlap(known):
    with known.changing() as touch_first:
        with known.changing() as touch_second:
            touch_first([1])
            touch_second([1])
        known.keep(1, "ann", person(plan="free"), 15, known.version)
        assert known.get(1, "ann") is None
    known.keep(1, "ann", person(plan="free"), 15, known.version)
    assert known.get(1, "ann") is not None


@pytest.mark.parametrize("limits", [{"max_names": 10}, {"max_bytes": 100}])
def test_memory_is_bounded(limits):
    known = PersonCache(**limits)
    for number in range(100):
        known.keep(1, f"user-{number}", person(number), 10, 0)
        assert known.get(1, f"user-{number}") is not None  # the latest always fits
    assert sum(known.get(1, f"user-{number}") is not None for number in range(100)) <= 10


def test_a_person_larger_than_the_limit_is_not_kept():
    known = PersonCache(max_bytes=100)
    known.keep(1, "ann", person(), 101, 0)
    assert known.get(1, "ann") is None


def test_changes_told_from_threads(known):
    def change() -> None:
        for _ in range(200):
            with known.changing() as touch:
                touch([1])

    threads = [threading.Thread(target=change) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert known.version == 800
    assert known.get(1, "ann") is None
