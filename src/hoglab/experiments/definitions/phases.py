"""Phases of an experiment: spans of time in which its flag gave people to the variants in the same shares.

The shares in force are kept from the launch on. A flag says only how it divides people now: after a variant was shipped
it gives everybody that variant, which tells nothing about the people who were counted before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from hoglab.experiments.definitions.flag_config import variants_of
from hoglab.http.fields.dates import format_moment, parse_moment

MAX_PHASES = 50
"""Maximum number of phases of an experiment. The last one has no shares then: its people are not tested."""
SETTLING = timedelta(minutes=5)
"""Time after a change of shares in which clients may still use the former ones: people of this time are not tested."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase from ``begin`` on, until the next one or the end; of the first one the experiment's start counts."""

    begin: datetime
    shares: Mapping[str, float]
    """Shares of people by variant, in percent."""


def first_phases(filters: Mapping[str, Any], start: datetime) -> list[dict[str, Any]]:
    """Return the phases of an experiment that starts with a flag of these filters, as they are stored."""
    return [_stored(start, shares_of(filters))]


def with_shares(
    phases: Sequence[Mapping[str, Any]], filters: Mapping[str, Any], begin: datetime
) -> list[dict[str, Any]]:
    """Return stored phases with one more, where a flag of these filters divides people otherwise than before."""
    kept = [dict(phase) for phase in phases]
    shares = shares_of(filters)
    if len(kept) >= MAX_PHASES or shares == dict(kept[-1]["shares"]):
        return kept
    return [*kept, _stored(begin, shares if len(kept) < MAX_PHASES - 1 else {})]


def phases_between(
    stored: Sequence[Mapping[str, Any]] | None,
    filters: Mapping[str, Any],
    start: datetime,
    end: datetime,
    variants: Collection[str],
) -> list[Phase]:
    """Return the phases of an experiment between two moments, with the shares of the compared variants.

    Of an experiment without stored phases, which an older version started, the flag's present shares hold.
    """
    phases = [
        Phase(parse_moment(phase["begin"]), phase["shares"])
        for phase in stored or first_phases(filters, start)
    ]
    begun = [phase for number, phase in enumerate(phases) if number == 0 or phase.begin < end]
    last_before = max((number for number, phase in enumerate(begun) if phase.begin <= start), default=0)
    return [
        Phase(
            max(phase.begin, start) if number else start,
            {key: share for key, share in phase.shares.items() if key in variants},
        )
        for number, phase in enumerate(begun[last_before:])
    ]


def shares_of(filters: Mapping[str, Any]) -> dict[str, float]:
    """Return the shares of people that a flag gives to its variants, in percent."""
    return {variant["key"]: float(variant.get("rollout_percentage") or 0) for variant in variants_of(filters)}


def _stored(begin: datetime, shares: Mapping[str, float]) -> dict[str, Any]:
    return {"begin": format_moment(begin), "shares": dict(shares)}
