from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from hoglab.filters.evaluate import EvaluationContext
from hoglab.flags.checks import Cohort
from hoglab.flags.definition import FlagSource
from hoglab.flags.matching import evaluate
from hoglab.flags.outcome import Outcome
from hoglab.flags.snapshot import Choice, ProjectData, ProjectFlags
from hoglab.flags.subject import FlagRequest, StoredPerson, Subject

NOW = datetime(2026, 3, 31, 15, 30, tzinfo=UTC)


@dataclass
class Memory:
    """Stored facts of one project, kept in dictionaries; counts its reads and can be made to fail."""

    persons: dict[str, StoredPerson] = field(default_factory=dict)
    groups: dict[tuple[int, str], Mapping[str, Any]] = field(default_factory=dict)
    members: set[tuple[int, int]] = field(default_factory=set)
    overrides: dict[str, dict[str, str]] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    broken: bool = False

    def person(self, distinct_id: str) -> StoredPerson | None:
        self._note("person")
        return self.persons.get(distinct_id)

    def group_properties(self, group_type_index: int, group_key: str) -> Mapping[str, Any] | None:
        self._note("group")
        return self.groups.get((group_type_index, group_key))

    def is_in_static_cohort(self, cohort_id: int, person_id: int) -> bool:
        self._note("cohort")
        return (cohort_id, person_id) in self.members

    def hash_keys(self, distinct_ids: tuple[str, ...]) -> Mapping[str, str]:
        self._note("hash_keys")
        found: dict[str, str] = {}
        for distinct_id in reversed(distinct_ids):
            found.update(self.overrides.get(distinct_id, {}))
        return found

    def _note(self, what: str) -> None:
        self.reads.append(what)
        if self.broken:
            raise OSError("the database is on holiday")


class World:
    """A project for matching tests: flags given by their filters, evaluated for one request."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.sources: list[FlagSource] = []
        self.cohorts: dict[int, Cohort] = {}
        self.group_names: dict[int, str] = {0: "company", 1: "team"}
        self.now: Callable[[], datetime] = lambda: NOW

    def flag(self, key: str, filters: Mapping[str, Any] | None = None, **more: Any) -> FlagSource:
        more.setdefault("id", len(self.sources) + 1)
        more.setdefault("active", True)
        more.setdefault("version", 1)
        source = FlagSource(key=key, filters={"groups": [{}]} if filters is None else filters, **more)
        self.sources.append(source)
        return source

    def cohort(self, cohort_id: int, tree: Any = None, *, is_static: bool = False) -> None:
        self.cohorts[cohort_id] = Cohort(cohort_id, is_static, tree)

    def project(self) -> ProjectFlags:
        context = EvaluationContext(now=self.now)
        return ProjectFlags(
            ProjectData(tuple(self.sources), dict(self.cohorts), dict(self.group_names), context)
        )

    def all(
        self, distinct_id: str = "user-1", choice: Choice | None = None, **request: Any
    ) -> dict[str, Outcome]:
        project = self.project()
        subject = Subject(FlagRequest(distinct_id, **request), project.group_names, self.memory)
        outcomes, _ = evaluate(project.selection(choice or Choice()).stages, subject)
        return {outcome.key: outcome for outcome in outcomes}

    def value(self, key: str, distinct_id: str = "user-1", **request: Any) -> bool | str:
        return self.all(distinct_id, **request)[key].value


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def value_of() -> Callable[..., bool | str]:
    """The value of one flag with these filters for one distinct id."""

    def evaluate_one(key: str, filters: Mapping[str, Any], distinct_id: str, **more: Any) -> bool | str:
        world = World()
        world.flag(key, filters, **more)
        return world.value(key, distinct_id)

    return evaluate_one
