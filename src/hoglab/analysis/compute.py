"""Answer questions from the event store: one result, or one for the end of every day."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hoglab.analysis import cancelling
from hoglab.analysis.errors import ComputationError, DefinitionError, DidNotEndError, UnavailableError
from hoglab.analysis.query.changes import any_merge, arrivals, merges
from hoglab.analysis.query.counts import any_event, events_per_day, people
from hoglab.analysis.query.dialect import Dialect
from hoglab.analysis.query.duckdb import DuckDb
from hoglab.analysis.query.event_relation import ALL_EVENTS, EventRelation
from hoglab.analysis.query.exposures import MULTIPLE, exposures_per_day
from hoglab.analysis.query.kept import Kept, kept, kept_exposures, key_of
from hoglab.analysis.query.model import (
    KnownGroups,
    MeanMetric,
    Metric,
    QuantileMetric,
    Question,
    event_names,
    metric_sources,
    tables_of,
)
from hoglab.analysis.query.pipeline import compiled, value_statement
from hoglab.analysis.query.scope import Scope, Statement
from hoglab.analysis.query.shared import MIN_QUESTIONS, shared_scan, without_tables
from hoglab.analysis.query.statements import (
    Answer,
    Compiled,
    all_days_at_once,
    at_end_of_day,
    can_share,
)
from hoglab.analysis.query.together import MAX_TOGETHER, can_be_together, together
from hoglab.filters import FilterError
from hoglab.storage.event_store import (
    EventStoreUnavailableError,
    QueryCancelledError,
    QueryError,
    QueryMemoryError,
    QueryTimeoutError,
)
from hoglab.storage.table_files import TableFileError

if TYPE_CHECKING:
    from hoglab.analysis.state import ResultsState
    from hoglab.statistics import SufficientStatistics
    from hoglab.storage.event_store import Reader
    from hoglab.storage.table_files import FileTable, TableDirectory

MULTIPLE_VARIANT = "$multiple"
MAX_GROUPS = 200_000
"""How many groups of a type there may be where a question asks for their properties: all are sent with it."""
MAX_CELLS = 500
"""How many combinations of breakdown values one result may have."""


class Readable(Protocol):
    """What computing needs of an event store."""

    def reader(self) -> AbstractContextManager[Reader]:
        """A reader for one thread. Raises `EventStoreUnavailableError`."""
        ...


T = TypeVar("T")
Groups = Callable[[int, int, int], Sequence[tuple[str, Mapping[str, Any]]]]
"""The groups of a project and the index of a type, with their properties; of so many at most."""


def no_groups(_project_id: int, _index: int, _limit: int) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """A project without groups."""
    return ()


class Computer:
    """Runs statements, each with a time limit. All methods raise `DefinitionError` and `ComputationError`."""

    def __init__(
        self,
        store: Readable,
        *,
        timeout_s: float,
        dialect: Dialect | None = None,
        tables: TableDirectory | None = None,
        state: ResultsState | None = None,
        groups: Groups = no_groups,
        events: EventRelation = ALL_EVENTS,
    ) -> None:
        """``tables`` is where the files of tables beside the events are; the store must be able to read them.

        ``state`` is of the same store; without it all is read from the ``events``, those of the store if not said.
        """
        self._events = events
        self._store = store
        self._groups = groups
        self._tables = tables
        self._state = state
        self._timeout_s = timeout_s
        self._dialect: Dialect = dialect or DuckDb()

    def result(self, question: Question) -> Answer:
        """Statistics by variant over the whole span."""
        question = self._settled(question)
        known = self._from_state(question, only_if_known=True)
        if known is not None:
            return known[-1]
        question = _whole(question)
        query = self._compiled(question)
        answer = _bounded(query.answer(self._run(query.statement, question)))
        if isinstance(question.metric, QuantileMetric) and question.exposures.breakdowns:
            # Quantiles of cells do not add up: everybody is a question of its own.
            everybody = replace(question, exposures=replace(question.exposures, breakdowns=()))
            answer = replace(answer, groups=self.result(everybody).groups)
        return answer

    def entities(
        self, question: Question, limit: int
    ) -> tuple[list[tuple[float, ...]], Callable[[Sequence[float]], SufficientStatistics]]:
        """What each of at most ``limit`` entities adds to the statistics, and what makes statistics of the sums.

        Quantiles have no such parts: `DefinitionError`.
        """
        if isinstance(question.metric, QuantileMetric):
            raise DefinitionError("Quantiles of entities do not add up.")
        whole = _whole(self._settled(question))
        query = self._compiled(whole, entities=limit)
        return self._run(query.statement, whole), query.statistics

    def values(self, question: Question, people: int, limit: int) -> list[list[float]]:
        """The values that a quantile is taken of, for each of so many entities at most; some may have none.

        Raises `DefinitionError` for more than ``limit`` values.
        """
        whole = _whole(self._settled(question))
        found: dict[str, list[float]] = {}
        rows = self._run(self._built(lambda scope: value_statement(scope, people, limit + 1), whole), whole)
        if len(rows) > limit:
            raise DefinitionError(f"There are more than {limit:,} values: take fewer days of history.")
        for entity, value in rows:
            values = found.setdefault(entity, [])
            if value is not None:
                values.append(value)
        return list(found.values())

    @contextmanager
    def sharing(self, questions: Sequence[Question]) -> Iterator[Callable[[Question], Answer]]:
        """What gives the `result` of each of these questions, in any order, looking at the events once.

        All are of one experiment and span. Where sharing is not possible each is computed by itself.
        """
        shareable = (self._settled(question) for question in questions if can_share(question))
        fitting = [question for question in shareable if not self._is_known(question)]
        if len(fitting) < MIN_QUESTIONS:
            yield self.result
            return
        with explained_failures(self._timeout_s), self._store.reader() as reader:
            try:
                shared = self._shared(reader, fitting)
                several = None
                if shared is not None:
                    there = Computer(
                        _Borrowed(reader), timeout_s=self._timeout_s, dialect=self._dialect, events=shared
                    )
                    several = _Several(there, fitting)

                def result(question: Question) -> Answer:
                    question = self._settled(question)
                    if several is None or question not in fitting:
                        return self.result(question)
                    return several.result(question)

                yield result
            finally:
                for drop in without_tables(self._dialect):
                    reader.execute(drop)

    def _shared(self, reader: Reader, questions: Sequence[Question]) -> EventRelation | None:
        """The table of the questions' events; None when it could not be made."""
        try:
            scan = shared_scan([_whole(question) for question in questions], self._dialect)
            for statement in scan.statements:
                self._executed(reader, statement)
        except (FilterError, QueryTimeoutError, QueryMemoryError):
            return None
        return scan.relation

    def results(self, questions: Sequence[Question]) -> list[Answer]:
        """The `result` of each of several questions that `can_be_together`, from one statement."""
        asked = [_whole(self._settled(question)) for question in questions]
        try:
            query = together(asked, self._dialect, self._events)
        except FilterError as error:
            raise DefinitionError(str(error)) from error
        return list(query.answers(self._run(query.statement, asked[0])))

    def points(self, question: Question, wanted: Sequence[int] | None = None) -> Mapping[int, Answer]:
        """Statistics by variant at the end of days of the span's grid, by the number of the day.

        ``wanted`` days suffice: where each day costs a statement of its own, only those are computed.
        """
        grid = question.span.days
        if grid is None:
            raise ValueError("a series needs days")
        question = self._settled(question)
        known = self._from_state(question)
        if all_days_at_once(question):
            if known is not None:
                return dict(enumerate(known))
            query = self._compiled(question)
            return dict(enumerate(map(_bounded, query.points(self._run(query.statement, question)))))
        numbers = range(grid.count) if wanted is None else wanted
        last = grid.count - 1
        return {
            number: known[0]
            if known is not None and number == last
            else self.result(at_end_of_day(question, number))
            for number in numbers
        }

    def _is_known(self, question: Question) -> bool:
        """Whether there may be an answer without looking at all events; told without a statement for it."""
        if self._state is None or question.span.days is None:
            return False
        with explained_failures(self._timeout_s):
            return self._state.knows(key_of(question))

    def _from_state(self, question: Question, *, only_if_known: bool = False) -> list[Answer] | None:
        """The points of a metric whose days add up, or the last point of another; None: look at the events."""
        found = self._read_state(kept, question, only_if_known=only_if_known)
        if found is None:
            return None
        query, rows = found
        answers = [query.answer(rows)] if query.question.span.days is None else query.points(rows)
        return [_bounded(answer) for answer in answers]

    def _read_state(
        self, how: Callable[[Question], Kept | None], question: Question, *, only_if_known: bool = False
    ) -> tuple[Compiled, list[tuple[Any, ...]]] | None:
        """What is kept for a question, and the rows that answer it; None: look at the events."""
        if self._state is None or (only_if_known and not self._is_known(question)):
            return None
        try:
            found = how(question)
        except FilterError as error:
            raise DefinitionError(str(error)) from error
        if found is None:
            return None
        with explained_failures(self._timeout_s):
            rows = self._state.rows(found)
        return None if rows is None else (found.query, rows)

    def exposures(self, question: Question) -> Mapping[str, list[int]]:
        """New entities by variant and day of the span's grid; ``$multiple`` only when there are any."""
        grid = question.span.days
        if grid is None:
            raise ValueError("exposures are counted by day")
        question = self._settled(question)
        variants = question.exposures.variants
        known = self._read_state(kept_exposures, question)
        rows = (
            known[1] if known is not None else self._run(self._built(exposures_per_day, question), question)
        )
        counts = {key: [0] * grid.count for key in variants}
        for day, variant, entities in rows:
            key = MULTIPLE_VARIANT if variant == MULTIPLE else variants[variant]
            counts.setdefault(key, [0] * grid.count)[day] = entities
        return counts

    def changes(self, question: Question, after: int, until: datetime) -> Mapping[int, int]:
        """The days of the span's grid whose points may be others for what was stored behind the log offset ``after``,
        each with the last offset of that: events of the time up to ``until``, and merges of persons with such."""
        question = self._settled(question)
        rows = self._run(self._built(lambda scope: arrivals(scope, after, until), question), question)
        if self._run(self._built(lambda scope: any_merge(scope, after), question), question):
            statement = self._built(
                lambda scope: merges(scope.question, scope.dialect, after, until), question
            )
            rows += [] if statement is None else self._run(statement, question)
        newest: dict[int, int] = {}
        for day, offset in rows:
            newest[day] = max(offset, newest.get(day, 0))
        return newest

    def tagged_events(self, question: Question) -> Mapping[str, list[float]]:
        """Events, or the sums of their values, by the variant in their own property and day (legacy trends)."""
        grid, metric = question.span.days, question.metric
        if grid is None or not isinstance(metric, MeanMetric):
            raise ValueError("tagged events are counted by day, as a mean metric says")
        variants = question.exposures.variants
        totals = {key: [0.0] * grid.count for key in variants}
        for variant, day, total in self._run(
            self._built(lambda scope: events_per_day(scope, metric.value), question), question
        ):
            totals[variants[variant]][day] = total
        return totals

    def tagged_people(self, question: Question) -> Mapping[str, int]:
        """Entities with an event of a variant, by the variant in the event's own property (legacy trends)."""
        rows = self._run(self._built(people, question), question)
        return {question.exposures.variants[variant]: count for variant, count in rows}

    def _settled(self, question: Question) -> Question:
        """The question with what counts as exposure in its project (spec experiment-results 2.2), and with the
        files and the groups that there are now."""
        question = replace(question, files=self._files(question.metric), groups=self._known_groups(question))
        exposures = question.exposures
        if exposures.substitute is None:
            return question
        missing = not self._run(self._built(any_event, question), question)
        source = exposures.substitute if missing else exposures.source
        return replace(question, exposures=replace(exposures, source=source, substitute=None))

    @contextmanager
    def _blaming_tables(self, question: Question) -> Iterator[None]:
        """What goes wrong with a question about tables is said to be about them."""
        try:
            yield
        except (QueryError, EventStoreUnavailableError) as error:
            if not question.files or self._tables is None:
                raise
            names = ", ".join(question.files)
            raise ComputationError(
                f"The data warehouse table {names} could not be read: {self._tables.explained(error)}",
                retry=False,
            ) from error

    def _files(self, metric: Metric) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for table in (source.table for source in tables_of(metric)):
            if self._tables is None:
                raise DefinitionError("This server has no directory of data warehouse tables.")
            try:
                found[table.name] = self._tables.files_of(table)
            except TableFileError as error:
                raise DefinitionError(f"The data warehouse table {table.name}: {error}") from error
        return found

    def state_of_tables(self, tables: Sequence[FileTable]) -> str | None:
        """What tells tables and their files, as they are now, from what they were; None without any tables."""
        if not tables or self._tables is None:
            return None
        states: list[object] = []
        for table in tables:
            try:
                states.append((table, self._tables.state_of(table)))
            except TableFileError as error:
                states.append((table, str(error)))
        return hashlib.sha256(repr(states).encode()).hexdigest()

    def _known_groups(self, question: Question) -> Mapping[int, KnownGroups]:
        found: dict[int, KnownGroups] = {}
        for index, names in question.group_properties.items():
            groups = self._groups(question.exposures.project_id, index, MAX_GROUPS + 1)
            if len(groups) > MAX_GROUPS:
                raise DefinitionError(
                    f"Properties of groups can be used while there are at most {MAX_GROUPS:,} of them."
                )
            asked = [json.dumps({n: each[n] for n in names if n in each}) for _, each in groups]
            found[index] = KnownGroups(tuple(key for key, _ in groups), tuple(asked))
        return found

    def _built(self, build: Callable[[Scope], T], question: Question) -> T:
        try:
            return build(Scope(question, self._dialect, self._events))
        except FilterError as error:
            raise DefinitionError(str(error)) from error

    def _compiled(self, question: Question, *, entities: int | None = None) -> Compiled:
        try:
            return compiled(question, self._dialect, self._events, entities=entities)
        except FilterError as error:
            raise DefinitionError(str(error)) from error

    def _run(self, statement: Statement, question: Question) -> list[tuple[Any, ...]]:
        with (
            explained_failures(self._timeout_s),
            self._store.reader() as reader,
            self._blaming_tables(question),
        ):
            return self._executed(reader, statement)

    def _executed(self, reader: Reader, statement: Statement) -> list[tuple[Any, ...]]:
        """The rows of a statement, which whoever may cancel the computation can interrupt."""
        cancellation = cancelling.current() or cancelling.Cancellation()
        with cancellation.reaching(reader.interrupt) as cancelled:
            if cancelled:
                raise QueryCancelledError
            return reader.execute(statement.sql, statement.parameters, timeout_s=self._timeout_s)


class _Several:
    """Results of questions of one experiment, several of them at a time where one statement answers them."""

    def __init__(self, computer: Computer, questions: Sequence[Question]) -> None:
        self._computer = computer
        fitting = [question for question in questions if can_be_together(_whole(question))]
        different = [question for number, question in enumerate(fitting) if question not in fitting[:number]]
        different.sort(key=_events_of)  # a statement looks at the events of all that it answers
        self._batches = [
            different[start : start + MAX_TOGETHER] for start in range(0, len(different), MAX_TOGETHER)
        ]
        self._known: list[tuple[Question, Answer]] = []

    def result(self, question: Question) -> Answer:
        """See `Computer.result`. What cannot be computed together is computed by itself."""
        batch = next((batch for batch in self._batches if question in batch), None)
        if batch is not None:
            self._batches.remove(batch)
            with suppress(DefinitionError, ComputationError):
                self._known += zip(batch, self._computer.results(batch), strict=True)
        for known, answer in self._known:
            if known == question:
                return _bounded(answer)
        return self._computer.result(question)


def _events_of(question: Question) -> list[str]:
    """The names of the events that a metric counts."""
    return sorted(name or "" for name in event_names(metric_sources(question.metric)))


class _Borrowed:
    """A store whose only reader is one that is open already, with its temporary tables."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    @contextmanager
    def reader(self) -> Iterator[Reader]:
        yield self._reader


@contextmanager
def explained_failures(timeout_s: float) -> Iterator[None]:
    """What the event store raises, as `ComputationError` with a text for a person."""
    try:
        yield
    except QueryTimeoutError as error:
        raise DidNotEndError(f"Query exceeded the time limit of {timeout_s:g} s") from error
    except QueryCancelledError as error:
        raise ComputationError("Query was cancelled", retry=False) from error
    except QueryMemoryError as error:
        raise DidNotEndError("Query exceeded the memory limit") from error
    except EventStoreUnavailableError as error:
        raise UnavailableError("The event store is not available now") from error
    except QueryError as error:
        raise ComputationError(f"Query failed: {error}", retry=False) from error


def _whole(question: Question) -> Question:
    """The question for one result over its span."""
    return replace(question, span=replace(question.span, days=None))


def _bounded(answer: Answer) -> Answer:
    if len(answer.cells) > MAX_CELLS:
        raise DefinitionError(f"The breakdowns have more than {MAX_CELLS} combinations of values.")
    return answer
