"""Processor time is charged to the test that used it."""

from __future__ import annotations

from tests.processor_time import Reading


def test_time_of_the_process_and_of_its_children_counts() -> None:
    assert Reading(1, 2, 10).used_s(Reading(3, 5, 20), processors=2) == 5


def test_a_child_counts_for_no_more_than_all_processors_had_meanwhile() -> None:
    """It ran for earlier tests, and ended in this one, which took half a second."""
    assert Reading(1, 2, 10).used_s(Reading(1.25, 13, 10.5), processors=2) == 1.25


def test_the_clocks_are_those_of_this_process() -> None:
    began = Reading.now()
    sum(range(1_000_000))
    assert began.used_s(Reading.now()) > 0
