"""Running statements on the event store: with a time limit, cancellation, and errors explained to a person."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from hoglab.analysis.cancellation import Cancellation, current_cancellation
from hoglab.analysis.errors import ComputationError, DefinitionError, DidNotEndError, UnavailableError
from hoglab.analysis.query import Answer, pipeline_of
from hoglab.analysis.query.event_relation import ALL_EVENTS, EventRelation
from hoglab.analysis.query.model import QuantileMeasure, Question
from hoglab.analysis.query.scope import Scope, SqlStatement
from hoglab.filters import FilterError
from hoglab.storage.event_store import (
    EventStoreUnavailableError,
    QueryCancelledError,
    QueryError,
    QueryMemoryError,
    QueryTimeoutError,
)
from hoglab.storage.event_store.dialects import Dialect

if TYPE_CHECKING:
    from hoglab.storage.event_store import Reader
    from hoglab.storage.table_files import TableDirectory

MAX_CELLS = 500
"""Maximum number of combinations of breakdown values in one result."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StatementRunner:
    """Statements of one engine over one relation of events.

    All methods raise `DefinitionError` for questions that make no sense and `ComputationError` for statements that
    fail.
    """

    reader: Callable[[], AbstractContextManager[Reader]]
    """`EventReader.reader` of the event store."""
    dialect: Dialect
    """SQL dialect of the engine."""
    timeout_s: float
    tables: TableDirectory | None = None
    """Directory of the files of warehouse tables."""
    events: EventRelation = ALL_EVENTS

    def over(self, reader: Reader, events: EventRelation) -> StatementRunner:
        """Return a runner on a reader that is open already, over events that its temporary tables have."""
        return replace(self, reader=lambda: nullcontext(reader), events=events)

    def built(self, build: Callable[[Scope], T], question: Question) -> T:
        """Return the result of ``build`` for a question, in a scope of its own."""
        try:
            return build(Scope(question, self.dialect, self.events))
        except FilterError as error:
            raise DefinitionError(str(error)) from error

    def rows(self, build: Callable[[Scope], SqlStatement], question: Question) -> list[tuple[Any, ...]]:
        """Run the statement that is built for a question and return its rows."""
        return self.run(self.built(build, question), question)

    def run(self, statement: SqlStatement, question: Question) -> list[tuple[Any, ...]]:
        """Run a statement about a question and return its rows."""
        with (
            explained_failures(self.timeout_s),
            self.reader() as reader,
            self._blaming_tables(question),
        ):
            return self.executed(reader, statement)

    def executed(self, reader: Reader, statement: SqlStatement) -> list[tuple[Any, ...]]:
        """Run a statement, which a cancellation of the computation interrupts, and return its rows.

        Raises the errors of `Reader`.
        """
        cancellation = current_cancellation() or Cancellation()
        with cancellation.reaching(reader.interrupt) as cancelled:
            if cancelled:
                raise QueryCancelledError
            return reader.execute(statement.sql, statement.parameters, timeout_s=self.timeout_s)

    def answer(self, question: Question) -> Answer:
        """Compute the answer of a question without days."""
        query = self.built(lambda scope: pipeline_of(scope).compiled, question)
        answer = bounded(query.answer(self.run(query.statement, question)))
        if isinstance(question.metric, QuantileMeasure) and question.exposures.breakdowns:
            # Quantiles of cells do not add up: everybody is a question of its own.
            everybody = replace(question, exposures=replace(question.exposures, breakdowns=()))
            answer = replace(answer, groups=self.answer(everybody).groups)
        return answer

    @contextmanager
    def _blaming_tables(self, question: Question) -> Iterator[None]:
        """Name the tables in errors of a question about tables."""
        try:
            yield
        except (QueryError, EventStoreUnavailableError) as error:
            if not question.files or self.tables is None:
                raise
            names = ", ".join(question.files)
            raise ComputationError(
                f"The data warehouse table {names} could not be read: {self.tables.explained(error)}",
                retry=False,
            ) from error


@contextmanager
def explained_failures(timeout_s: float) -> Iterator[None]:
    """Translate errors of the event store in the block into `ComputationError` with a text for a person."""
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


def whole(question: Question) -> Question:
    """Return the question for one result over its span."""
    return replace(question, span=replace(question.span, days=None))


def bounded(answer: Answer) -> Answer:
    """Return the answer, if it is not too large. Raises `DefinitionError`."""
    if len(answer.cells) > MAX_CELLS:
        raise DefinitionError(f"The breakdowns have more than {MAX_CELLS} combinations of values.")
    return answer
