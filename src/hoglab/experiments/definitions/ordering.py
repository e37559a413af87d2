"""The order in which clients show metrics (spec experiments-api 3.10)."""

from __future__ import annotations

from collections.abc import Sequence

from hoglab.http.errors import validation_error


def created(
    sent: Sequence[str] | None, inline: Sequence[str] | None, saved: Sequence[str]
) -> list[str] | None:
    """Return the order of a new experiment: the sent one, completed. None when it has no metrics and none was sent."""
    if inline is None and not saved:
        return None
    return completed(sent or [], [*(inline or ()), *saved])


def changed(base: Sequence[str] | None, before: Sequence[str], after: Sequence[str]) -> list[str] | None:
    """Return the order after a change of metrics: new ones are appended, removed ones are dropped.

    ``base`` is the order that was sent, or the stored one. Without a change it is returned as it is.
    """
    if base is None and not after:
        return None
    gone = set(before) - set(after)
    return completed([uuid for uuid in base or () if uuid not in gone], after)


def completed(order: Sequence[str], uuids: Sequence[str]) -> list[str]:
    """Return ``order`` with the missing uuids at its end, in their own order."""
    known = set(order)
    return [*order, *dict.fromkeys(uuid for uuid in uuids if uuid not in known)]


def check(order: Sequence[str] | None, uuids: Sequence[str], kind: str) -> None:
    """Raise 400 when a metric has no place in the order; surplus uuids are allowed."""
    advice = "This is likely a frontend bug - please refresh and try again."
    if not uuids:
        return
    if order is None:
        raise validation_error(f"{kind}_metrics_ordered_uuids is null but {kind} metrics exist. {advice}")
    if missing := [uuid for uuid in uuids if uuid not in set(order)]:
        raise validation_error(f"{kind}_metrics_ordered_uuids is missing UUIDs: {missing}. {advice}")
