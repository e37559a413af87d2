"""Results of several questions of one experiment from one scan of the events.

Temporary tables hold everything that the statements of the questions read (`hoglab.analysis.query.shared_scan`), and
one statement answers several questions where possible (`hoglab.analysis.query.combined_statement`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from hoglab.analysis.errors import ComputationError, DefinitionError
from hoglab.analysis.execution.statement_runner import StatementRunner, bounded, explained_failures
from hoglab.analysis.query import MAX_COMBINED, Answer, can_combine, combine_questions
from hoglab.analysis.query.model import Question, event_names, metric_sources
from hoglab.analysis.query.shared_scan import drop_tables, shared_scan
from hoglab.filters import FilterError
from hoglab.storage.event_store import QueryMemoryError, QueryTimeoutError

if TYPE_CHECKING:
    from hoglab.storage.event_store import Reader


@contextmanager
def shared_results(
    runner: StatementRunner, questions: Sequence[Question]
) -> Iterator[Callable[[Question], Answer] | None]:
    """Return a function that answers each of these questions, all about a whole span; None without the tables.

    Raises as the methods of `StatementRunner`.
    """
    with explained_failures(runner.timeout_s), runner.reader() as reader:
        try:
            shared = _over_tables(runner, reader, questions)
            yield None if shared is None else _Several(shared, questions).answer
        finally:
            for drop in drop_tables(runner.dialect):
                reader.execute(drop)


def _over_tables(
    runner: StatementRunner, reader: Reader, questions: Sequence[Question]
) -> StatementRunner | None:
    try:
        scan = shared_scan(questions, runner.dialect)
        for statement in scan.statements:
            runner.executed(reader, statement)
    except (FilterError, QueryTimeoutError, QueryMemoryError):
        return None
    return runner.over(reader, scan.relation)


class _Several:
    """Answers of questions, several from one statement where possible."""

    def __init__(self, runner: StatementRunner, questions: Sequence[Question]) -> None:
        self._runner = runner
        fitting = [question for question in questions if can_combine(question)]
        different = [question for number, question in enumerate(fitting) if question not in fitting[:number]]
        different.sort(key=_events_of)  # a statement looks at the events of all that it answers
        self._batches = [
            different[start : start + MAX_COMBINED] for start in range(0, len(different), MAX_COMBINED)
        ]
        self._known: list[tuple[Question, Answer]] = []

    def answer(self, question: Question) -> Answer:
        """Return the answer of one of the questions. A question that shares no statement is computed by itself."""
        batch = next((batch for batch in self._batches if question in batch), None)
        if batch is not None:
            self._batches.remove(batch)
            with suppress(DefinitionError, ComputationError):
                self._known += zip(batch, self._answers(batch), strict=True)
        for known, answer in self._known:
            if known == question:
                return bounded(answer)
        return self._runner.answer(question)

    def _answers(self, questions: Sequence[Question]) -> Iterator[Answer]:
        runner, first = self._runner, questions[0]
        query = runner.built(lambda scope: combine_questions(questions, scope.dialect, runner.events), first)
        return query.answers(runner.run(query.statement, first))


def _events_of(question: Question) -> list[str]:
    """Return the names of the events that a metric counts."""
    return sorted(name or "" for name in event_names(metric_sources(question.metric)))
