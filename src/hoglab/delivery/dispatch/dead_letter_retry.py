"""Retrying events that did not become invocations, beginning with the filters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from hoglab.delivery.runs.dead_letters import stored_row
from hoglab.storage.event_store.ingested import IngestedEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hoglab.delivery.dispatch.dispatcher import EventDispatcher
    from hoglab.delivery.dispatch.plan import DispatchPlan
    from hoglab.storage.invocations import DeadLetters, DeadLetterSelection, StoredDeadLetter

MAX_RETRIED = 10_000
"""Maximum number of dead letters that one request retries."""
PAGE = 100


@dataclass(slots=True)
class RetriedDeadLetters:
    """Result of a retry.

    ``queued`` invocations were enqueued (with ``dry_run``: would be); ``tried`` events were evaluated, of which
    ``failed`` failed again; ``skipped`` events are for functions that are disabled or deleted, or for no function,
    and stay.
    """

    queued: int = 0
    tried: int = 0
    failed: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetterRetry:
    """Retries dead letters, beginning with the filters, and only for the functions that missed them.

    ``dispatcher`` creates one for a source, and for one function or (None) all that subscribe to it; None when the
    function does not run. ``read`` makes an event of the payload of step ``parse``.
    """

    letters: DeadLetters
    dispatcher: Callable[[int, str, str | None], EventDispatcher | None]
    read: Callable[[bytes], IngestedEvent]

    def retry(
        self, project_id: int, wanted: DeadLetterSelection, *, dry_run: bool = False
    ) -> RetriedDeadLetters:
        """Retry up to `MAX_RETRIED` matching dead letters, oldest failure first.

        An event that fails again is kept with the new reason.
        """
        done = RetriedDeadLetters()
        for page in self._pages(project_id, wanted):
            groups: dict[tuple[str, str | None], list[StoredDeadLetter]] = {}
            for letter in page:
                groups.setdefault((letter.source, letter.function_id), []).append(letter)
            for (source, function_id), letters in groups.items():
                dispatcher = self.dispatcher(project_id, source, function_id)
                if dispatcher is None:
                    done.skipped += len(letters)
                else:
                    self._again(dispatcher, letters, done, dry_run=dry_run)
        return done

    def _pages(self, project_id: int, wanted: DeadLetterSelection) -> Iterator[list[StoredDeadLetter]]:
        left = self.letters.oldest(project_id, wanted, MAX_RETRIED)
        while left:
            page, left = left[:PAGE], left[PAGE:]
            yield self.letters.read(page)

    def _again(
        self,
        dispatcher: EventDispatcher,
        letters: Sequence[StoredDeadLetter],
        done: RetriedDeadLetters,
        *,
        dry_run: bool,
    ) -> None:
        events, readable = [], []
        for letter in letters:
            try:
                event = self.read(letter.payload) if letter.step == "parse" else _event(letter.payload)
            except Exception:  # the reason why it is unreadable has not gone
                done.failed += 1
                continue
            events.append(event)
            readable.append(letter.id)

        def write(plan: DispatchPlan) -> tuple[DispatchPlan, int]:
            if dry_run:
                return plan, len(plan.invocations)
            again = {letter.id for letter in plan.dead}
            plan.retried = [id_ for id_ in readable if id_ not in again]
            return plan, dispatcher.commit(plan)

        plan, queued = dispatcher.carry_out(events, write)
        done.tried += len(letters)
        done.failed += len({(letter.event_uuid, letter.event, letter.distinct_id) for letter in plan.dead})
        done.queued += queued


def _event(payload: bytes) -> IngestedEvent:
    row = stored_row(payload)
    return IngestedEvent(row, orjson.loads(row.properties))
