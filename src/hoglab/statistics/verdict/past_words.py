"""Words about what was recorded of an experiment: amendments of its plan, alarms and decisions."""

from __future__ import annotations

from collections.abc import Iterator

from hoglab.statistics.verdict.model import Alarm, Amendment, Case, PastDecision, Reason


def about_the_past(case: Case) -> Iterator[Reason]:
    """Yield what was recorded since the launch, in the order in which it was."""
    for record in case.past:
        match record:
            case Amendment(on, by, changes):
                text = f"The plan was amended on {on:%Y-%m-%d}{_by(by)}: {'; '.join(changes)}."
                yield Reason("amended", text)
            case Alarm(on, headline, has_paused):
                paused = " The flag was switched off." if has_paused else ""
                yield Reason("alarm", f"An alarm was raised on {on:%Y-%m-%d}: {headline}{paused}")
            case PastDecision(on, by, shipped, headline):
                what = "It was ended" if shipped is None else f"“{shipped}” was shipped"
                then = (
                    "No verdict was known then." if headline is None else f"The verdict then was: {headline}"
                )
                yield Reason("decided", f"{what} on {on:%Y-%m-%d}{_by(by)}. {then}", variant=shipped)


def _by(author: str | None) -> str:
    return "" if author is None else f" by {author}"
