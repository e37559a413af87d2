"""Answers of questions from the event store: one result, or one for the end of every day."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.execution.sharing import shared_results
from hoglab.analysis.execution.statement_runner import (
    StatementRunner,
    bounded,
    explained_failures,
    whole,
)
from hoglab.analysis.incremental import (
    Materialization,
    key_of,
    materialized,
    materialized_exposures,
)
from hoglab.analysis.query import (
    MULTIPLE,
    Answer,
    Compiled,
    all_days_at_once,
    any_event,
    any_merge,
    arrivals,
    at_end_of_day,
    can_share,
    compiled,
    corrections,
    events_per_day,
    exposures_by_phase,
    exposures_per_day,
    merges,
    people,
    value_statement,
)
from hoglab.analysis.query.model import (
    KnownGroups,
    MeanMeasure,
    Metric,
    QuantileMeasure,
    Question,
    event_names,
    tables_of,
)
from hoglab.analysis.query.shared_scan import MIN_QUESTIONS
from hoglab.filters import FilterError
from hoglab.storage.table_files import TableFileError

if TYPE_CHECKING:
    from hoglab.analysis.incremental import AggregateCache
    from hoglab.statistics import SufficientStatistics
    from hoglab.storage.event_store import EventReader
    from hoglab.storage.event_store.dialects import Dialect
    from hoglab.storage.table_files import FileTable, TableDirectory

MULTIPLE_VARIANT = "$multiple"
MAX_GROUPS = 200_000
"""Maximum number of groups of a type where a question asks for their properties: all of them are parameters."""

Groups = Callable[[int, int, int], Sequence[tuple[str, Mapping[str, Any]]]]
"""Returns the groups of a project and the index of a type, with their properties, up to a maximum number."""


class Computer:
    """Answers of questions. All methods raise `DefinitionError` and `ComputationError`.

    A question is resolved once, by the method that takes it; `StatementRunner` runs its statements.
    """

    def __init__(
        self,
        store: EventReader,
        groups: Groups,
        *,
        timeout_s: float,
        tables: TableDirectory | None = None,
        aggregate_cache: AggregateCache | None = None,
    ) -> None:
        """Take an event store, and ``tables``, the directory of table files, which the store must be able to read.

        ``aggregate_cache`` belongs to the same store; without it everything is read from the events.
        """
        self._runner = StatementRunner(store.reader, store.dialect, timeout_s, tables)
        self._resolver = QuestionResolver(self._runner, groups)
        self._aggregate_cache = aggregate_cache

    @property
    def runner(self) -> StatementRunner:
        """Runner of statements that belong to no experiment."""
        return self._runner

    def result(self, question: Question) -> Answer:
        """Compute the statistics by variant over the whole span."""
        return self._result(self._resolver.resolved(question))

    def _result(self, question: Question) -> Answer:
        """Compute the statistics by variant of a resolved question."""
        if self._is_known(question):
            known = self._from_cache(question)
            if known is not None:
                return known[-1]
        return self._runner.answer(whole(question))

    def entities(
        self, question: Question, limit: int
    ) -> tuple[list[tuple[float, ...]], Callable[[Sequence[float]], SufficientStatistics]]:
        """Return the contributions of at most ``limit`` entities, and the function that makes statistics of their sums.

        Quantiles have no such parts: `DefinitionError`.
        """
        if isinstance(question.metric, QuantileMeasure):
            raise DefinitionError("Quantiles of entities do not add up.")
        asked = whole(self._resolver.resolved(question))
        query = self._compiled(asked, entities=limit)
        return self._runner.run(query.statement, asked), query.statistics

    def values(self, question: Question, people: int, limit: int) -> list[list[float]]:
        """Return the values that a quantile is taken of, for at most a number of entities; some may have none.

        Raises `DefinitionError` for more than ``limit`` values.
        """
        asked = whole(self._resolver.resolved(question))
        by_entity: dict[str, list[float]] = {}
        rows = self._runner.rows(lambda scope: value_statement(scope, people, limit + 1), asked)
        if len(rows) > limit:
            raise DefinitionError(f"There are more than {limit:,} values: take fewer days of history.")
        for entity, value in rows:
            values = by_entity.setdefault(entity, [])
            if value is not None:
                values.append(value)
        return list(by_entity.values())

    @contextmanager
    def sharing(self, questions: Sequence[Question]) -> Iterator[Callable[[Question], Answer]]:
        """Return a function that gives the `result` of each question, in any order, from one scan of the events.

        All of them have one experiment and span. Questions that cannot share a scan are computed one by one.
        """
        resolver = self._resolver.remembering()
        resolved = [(original, resolver.resolved(original)) for original in questions if can_share(original)]
        fitting = [whole(question) for _, question in resolved if not self._is_known(question)]

        def complete(question: Question) -> Question:
            known = (resolved_question for asked, resolved_question in resolved if asked == question)
            return next(known, None) or resolver.resolved(question)

        if len(fitting) < MIN_QUESTIONS:
            yield lambda question: self._result(complete(question))
            return
        with shared_results(self._runner, fitting) as shared:

            def result(question: Question) -> Answer:
                question = complete(question)
                if shared is None or whole(question) not in fitting:
                    return self._result(question)
                return shared(whole(question))

            yield result

    def points(self, question: Question, wanted: Sequence[int] | None = None) -> Mapping[int, Answer]:
        """Compute the statistics by variant at the end of days of the span's grid, by the number of the day.

        ``wanted`` days suffice: where each day costs a statement of its own, only those are computed.
        """
        grid = question.span.days
        if grid is None:
            raise ValueError("a series needs days")
        question = self._resolver.resolved(question)
        known = self._from_cache(question)
        if all_days_at_once(question):
            if known is not None:
                return dict(enumerate(known))
            query = self._compiled(question)
            rows = self._runner.run(query.statement, question)
            return dict(enumerate(map(bounded, query.points(rows))))
        numbers = range(grid.count) if wanted is None else wanted
        last = grid.count - 1
        return {
            number: known[0]
            if known is not None and number == last
            else self._runner.answer(whole(at_end_of_day(question, number)))
            for number in numbers
        }

    def _is_known(self, question: Question) -> bool:
        """Return whether the cache may have an answer without a scan of all events; no statement is run to find out."""
        if self._aggregate_cache is None or question.span.days is None:
            return False
        with explained_failures(self._runner.timeout_s):
            return self._aggregate_cache.knows(key_of(question))

    def _from_cache(self, question: Question) -> list[Answer] | None:
        """Return the points of an additive metric, or the last point of another, from the cache; None without it."""
        cached = self._read_cache(materialized, question)
        if cached is None:
            return None
        query, rows = cached
        answers = [query.answer(rows)] if query.question.span.days is None else query.points(rows)
        return [bounded(answer) for answer in answers]

    def _read_cache(
        self, how: Callable[[Question, Dialect], Materialization | None], question: Question
    ) -> tuple[Compiled, list[tuple[Any, ...]]] | None:
        """Return the materialized query of a question, and the rows that answer it; None: scan the events."""
        if self._aggregate_cache is None:
            return None
        try:
            materialization = how(question, self._runner.dialect)
        except FilterError as error:
            raise DefinitionError(str(error)) from error
        if materialization is None:
            return None
        with explained_failures(self._runner.timeout_s):
            rows = self._aggregate_cache.rows(materialization)
        return None if rows is None else (materialization.query, rows)

    def exposures(self, question: Question) -> Mapping[str, list[int]]:
        """Count the new entities by variant and day of the span's grid; ``$multiple`` only when there are any."""
        grid = question.span.days
        if grid is None:
            raise ValueError("exposures are counted by day")
        question = self._resolver.resolved(question)
        variants = question.exposures.variants
        known = self._read_cache(materialized_exposures, question)
        rows = known[1] if known is not None else self._runner.rows(exposures_per_day, question)
        counts = {key: [0] * grid.count for key in variants}
        for day, variant, entities in rows:
            key = MULTIPLE_VARIANT if variant == MULTIPLE else variants[variant]
            counts.setdefault(key, [0] * grid.count)[day] = entities
        return counts

    def exposures_by_phase(
        self, question: Question, begins: Sequence[datetime], settling: timedelta
    ) -> list[dict[str, int]]:
        """Count the entities by the phase of their first exposure, and by the variant that they saw in it.

        ``begins`` are the beginnings of the phases after the first one; ``settling`` is the time after each of them
        that counts for no phase.
        """
        question = self._resolver.resolved(replace(question, span=replace(question.span, days=None)))
        rows = self._runner.rows(lambda scope: exposures_by_phase(scope, begins, settling), question)
        counts: list[dict[str, int]] = [{} for _ in range(len(begins) + 1)]
        for phase, variant, entities in rows:
            if phase >= 0:
                key = MULTIPLE_VARIANT if variant == MULTIPLE else question.exposures.variants[variant]
                counts[phase][key] = entities
        return counts

    def changes(self, question: Question, after: int, until: datetime) -> Mapping[int, int]:
        """Return the days whose points may have changed by what was stored behind the log offset ``after``.

        Each day has the last offset of its changes: events up to ``until``, corrections of such, and merges of
        persons with such events.
        """
        question, runner = self._resolver.resolved(question), self._runner
        rows = runner.rows(lambda scope: arrivals(scope, after, until), question)
        replaced = runner.built(lambda scope: corrections(question, scope.dialect, after, until), question)
        rows += runner.run(replaced, question)
        if runner.rows(lambda scope: any_merge(scope, after), question):
            statement = runner.built(lambda scope: merges(question, scope.dialect, after, until), question)
            rows += [] if statement is None else runner.run(statement, question)
        newest: dict[int, int] = {}
        for day, offset in rows:
            newest[day] = max(offset, newest.get(day, 0))
        return newest

    def tagged_events(self, question: Question) -> Mapping[str, list[float]]:
        """Count events, or sum their values, by the variant in their own property and day (legacy trends)."""
        grid, metric = question.span.days, question.metric
        if grid is None or not isinstance(metric, MeanMeasure):
            raise ValueError("tagged events are counted by day, as a mean metric says")
        variants = question.exposures.variants
        totals = {key: [0.0] * grid.count for key in variants}
        for variant, day, total in self._runner.rows(
            lambda scope: events_per_day(scope, metric.value), question
        ):
            totals[variants[variant]][day] = total
        return totals

    def tagged_people(self, question: Question) -> Mapping[str, int]:
        """Count entities with an event of a variant, by the variant in the event's own property (legacy trends)."""
        rows = self._runner.rows(people, question)
        return {question.exposures.variants[variant]: count for variant, count in rows}

    def state_of_tables(self, tables: Sequence[FileTable]) -> str | None:
        """Return a digest of the present tables and their files; None without tables."""
        return self._resolver.state_of_tables(tables)

    def _compiled(self, question: Question, *, entities: int | None = None) -> Compiled:
        return self._runner.built(
            lambda scope: compiled(question, scope.dialect, scope.relation, entities=entities), question
        )


@dataclass(frozen=True, slots=True)
class QuestionResolver:
    """Completes questions with the present state of a project. Raises `DefinitionError` and `ComputationError`."""

    runner: StatementRunner
    groups: Groups
    seen: dict[tuple[int, frozenset[str | None]], bool] | None = None
    """Results of asking whether projects have events of some names; None: the store is asked each time."""

    @property
    def tables(self) -> TableDirectory | None:
        return self.runner.tables

    def remembering(self) -> QuestionResolver:
        """Return a resolver that asks the store only once for the same fact."""
        return replace(self, seen={})

    def resolved(self, question: Question) -> Question:
        """Return the question with the facts that its project and the moment decide.

        They are the events that count as exposure (spec experiment-results 2.2), and the present files and groups.
        """
        question = replace(question, files=self._files(question.metric), groups=self._known_groups(question))
        exposures = question.exposures
        if exposures.substitute is None:
            return question
        source = exposures.source if self._has_events(question) else exposures.substitute
        return replace(question, exposures=replace(exposures, source=source, substitute=None))

    def _has_events(self, question: Question) -> bool:
        exposures = question.exposures
        asked = exposures.project_id, event_names([exposures.source])
        has_events = None if self.seen is None else self.seen.get(asked)
        if has_events is None:
            has_events = bool(self.runner.rows(any_event, question))
            if self.seen is not None:
                self.seen[asked] = has_events
        return has_events

    def _files(self, metric: Metric) -> Mapping[str, tuple[str, ...]]:
        paths: dict[str, tuple[str, ...]] = {}
        for table in (source.table for source in tables_of(metric)):
            if self.tables is None:
                raise DefinitionError("This server has no directory of data warehouse tables.")
            try:
                paths[table.name] = self.tables.files_of(table)
            except TableFileError as error:
                raise DefinitionError(f"The data warehouse table {table.name}: {error}") from error
        return paths

    def _known_groups(self, question: Question) -> Mapping[int, KnownGroups]:
        known: dict[int, KnownGroups] = {}
        for index, names in question.group_properties.items():
            groups = self.groups(question.exposures.project_id, index, MAX_GROUPS + 1)
            if len(groups) > MAX_GROUPS:
                raise DefinitionError(
                    f"Properties of groups can be used while there are at most {MAX_GROUPS:,} of them."
                )
            asked = [
                json.dumps({n: properties[n] for n in names if n in properties}) for _, properties in groups
            ]
            known[index] = KnownGroups(tuple(key for key, _ in groups), tuple(asked))
        return known

    def state_of_tables(self, tables: Sequence[FileTable]) -> str | None:
        """Return a digest of the present tables and their files; None without tables."""
        if not tables or self.tables is None:
            return None
        states: list[object] = []
        for table in tables:
            try:
                states.append((table, self.tables.state_of(table)))
            except TableFileError as error:
                states.append((table, str(error)))
        return hashlib.sha256(repr(states).encode()).hexdigest()
