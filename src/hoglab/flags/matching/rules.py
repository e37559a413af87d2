"""The rules that give a flag its value for one subject (spec: sdk-wire 3.3, 3.4, 3.10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import structlog

from hoglab.filters.allowance import AllowanceSpentError
from hoglab.filters.evaluate import MISSING
from hoglab.flags.matching.checks import UNEVALUABLE
from hoglab.flags.matching.definition import CompiledFlag, Condition
from hoglab.flags.matching.hashing import ORIGIN, holdout_hash, place_of
from hoglab.flags.matching.outcome import GROUPS_SKIPPED, FlagFailure, FlagOutcome, FlagReason
from hoglab.flags.matching.subject import StoredFactsError, Subject

_log = structlog.get_logger(__name__)


class OrderedFlag(NamedTuple):
    """A flag in evaluation order: everything it depends on comes before it."""

    flag: CompiledFlag
    decided: FlagOutcome | None
    """Outcome for everybody; None when it depends on the subject."""
    shown: bool
    """Whether the caller asked for the flag; other flags are there because flags depend on them."""
    wanted: bool
    """Whether a later flag depends on its value."""

    @classmethod
    def of(cls, flag: CompiledFlag, *, shown: bool, wanted: bool, resolvable: bool) -> OrderedFlag:
        """Return a flag for evaluation.

        ``resolvable`` is False when a flag that it depends on, at any distance, is missing or depends on itself.
        """
        decided = None
        if not flag.active:
            decided = flag.outcome(False, FlagReason.DISABLED)
        elif not resolvable:
            decided = flag.outcome(False, FlagReason.MISSING_DEPENDENCY)
        return cls(flag, decided, shown, wanted)


def evaluate(stages: Iterable[OrderedFlag], subject: Subject) -> tuple[list[FlagOutcome], bool]:
    """Return outcomes of the shown flags, and whether any of them failed. Never raises."""
    outcomes: list[FlagOutcome] = []
    any_failed = False
    for flag, decided, shown, wanted in stages:
        if decided is not None:
            outcome = decided
        else:
            try:
                outcome = match_flag(flag, subject)
            except Exception as error:
                outcome = _failed(flag, error)
                any_failed = any_failed or shown
        if wanted and not outcome.failed:
            subject.values[flag.id] = outcome.value
        if shown:
            outcomes.append(outcome)
    return outcomes, any_failed


def _failed(flag: CompiledFlag, error: Exception) -> FlagOutcome:
    if isinstance(error, FlagFailure):
        return flag.failure(error)
    if isinstance(error, AllowanceSpentError):
        return flag.failure(FlagFailure(FlagReason.TIMEOUT))
    if isinstance(error, StoredFactsError):
        _log.warning("flag_lookup_failed", flag_id=flag.id, error=str(error))
        return flag.failure(FlagFailure(FlagReason.DATABASE_ERROR))
    _log.error("flag_evaluation_failed", flag_id=flag.id, exc_info=error)
    return flag.failure(FlagFailure(FlagReason.EVALUATION_ERROR))


def match_flag(flag: CompiledFlag, subject: Subject) -> FlagOutcome:
    """Return the value of an active flag whose dependencies have been evaluated. Raises `FlagFailure`."""
    if flag.is_special:
        decided = _before_conditions(flag, subject)
        if decided is not None:
            return decided
    best: FlagOutcome | None = None
    groups_skipped = False
    for condition in flag.conditions:
        outcome = None if condition.by_distinct_id else skipped(flag, condition, subject)
        if outcome is not None:
            groups_skipped = groups_skipped or outcome.reason is FlagReason.NO_GROUP_TYPE
        elif condition.checks and not _holds(condition, subject):
            outcome = condition.missed
        elif condition.limit is None or place_in(flag, condition, subject) <= condition.limit:
            return _matched(flag, condition, subject) if condition.split else condition.matched
        elif flag.early_exit:
            best = condition.out_of_rollout
            break
        else:
            outcome = condition.out_of_rollout
        if best is None or outcome.reason.rank >= best.reason.rank:
            best = outcome
    if best is None:
        return flag.undecided
    if groups_skipped and best.reason is FlagReason.NO_CONDITION_MATCH:
        return flag.outcome(False, best.reason, best.condition_index, description=GROUPS_SKIPPED)
    return best


def _before_conditions(flag: CompiledFlag, subject: Subject) -> FlagOutcome | None:
    """Return the outcome that is decided before the conditions, by these rules in order; None when none applies."""
    if flag.broken is not None:
        raise FlagFailure(FlagReason.EVALUATION_ERROR, flag.broken)
    return _enrollment(flag, subject) or _super_condition(flag, subject) or _holdout(flag, subject)


def _enrollment(flag: CompiledFlag, subject: Subject) -> FlagOutcome | None:
    if flag.enrollment_key is None:
        return None
    value = subject.person_property(flag.enrollment_key)
    if value is MISSING:
        return None
    return flag.outcome(value is True or value == "true", FlagReason.SUPER_CONDITION, 0)


def _super_condition(flag: CompiledFlag, subject: Subject) -> FlagOutcome | None:
    rule = flag.super_condition
    if rule is None or all(subject.person_property(key) is MISSING for key in rule.keys):
        return None
    condition = rule.condition
    if (
        skipped(flag, condition, subject) is None
        and _holds(condition, subject)
        and (condition.limit is None or place_in(flag, condition, subject) <= condition.limit)
    ):
        return _matched(flag, condition, subject)
    return flag.outcome(False, FlagReason.SUPER_CONDITION, 0)


def _holdout(flag: CompiledFlag, subject: Subject) -> FlagOutcome | None:
    holdout = flag.holdout
    if holdout is None:
        return None
    identifier = holdout_identifier(flag, subject)
    if identifier is None:
        return None
    if holdout.percentage != 100 and holdout_hash(identifier) > holdout.percentage / 100:
        return None
    return flag.outcome(True, FlagReason.HOLDOUT, None, holdout.variant)


def skipped(flag: CompiledFlag, condition: Condition, subject: Subject) -> FlagOutcome | None:
    """Return the outcome of a condition that is skipped for want of a group or of a device id; None when it is not."""
    if condition.aggregation is not None:
        return condition.no_group if subject.group_key(condition.aggregation) is None else None
    return condition.out_of_rollout if flag.by_device and subject.device_id is None else None


def _holds(condition: Condition, subject: Subject) -> bool:
    """Return whether every filter of a condition matches; one that cannot be evaluated does not."""
    try:
        for check in condition.checks:
            if not check(subject):
                return False
    except UNEVALUABLE:
        return False
    return True


def _matched(flag: CompiledFlag, condition: Condition, subject: Subject) -> FlagOutcome:
    """Return the outcome of a match: the variant that is drawn, if there are any to draw from."""
    place = place_in(flag, condition, subject, b"variant")
    for end, outcome in condition.split:
        if place < end:
            return outcome
    return condition.matched


def place_in(flag: CompiledFlag, condition: Condition, subject: Subject, salt: bytes = b"") -> bytes:
    """Return the position of the subject in a rollout, or, with the salt of variants, among those."""
    identifier = subject.id_bytes if condition.by_distinct_id else _identifier(flag, condition, subject)
    return place_of(flag.key_prefix + identifier + salt) if identifier else ORIGIN


def _identifier(flag: CompiledFlag, condition: Condition, subject: Subject) -> bytes:
    """Return the identifier to hash when it is not the distinct id (spec: sdk-wire 3.3)."""
    if condition.aggregation is not None:
        return (subject.group_key(condition.aggregation) or "").encode()
    if flag.by_device:
        return (subject.device_id or "").encode()
    return subject.sticky_id(flag.key).encode()


def holdout_identifier(flag: CompiledFlag, subject: Subject) -> str | None:
    """Return the group key, device id or distinct id, as the flag says; of one that persists, the bucketing id.

    PostHog takes no stored bucketing id here, so that people enter and leave a holdout by logging in.
    """
    if flag.aggregation is not None:
        return subject.group_key(flag.aggregation)
    if flag.by_device:
        return subject.device_id
    return subject.sticky_id(flag.key) if flag.continuity else subject.request.distinct_id


def order_stages(
    flags: Mapping[int, CompiledFlag], dependencies: Mapping[int, frozenset[int | None]]
) -> tuple[list[int], frozenset[int]]:
    """Return flag ids so that each comes after those it depends on, and the ids that can never be resolved.

    ``dependencies`` holds None for a flag that does not exist. Flags are unresolvable when they miss a dependency,
    depend on themselves, or depend on an unresolvable flag. Inactive flags depend on nothing: they are off.
    """
    waiting = {
        flag_id: {other for other in dependencies.get(flag_id, ()) if other is not None} for flag_id in flags
    }
    dependents: dict[int, list[int]] = {}
    for flag_id, others in waiting.items():
        for other in others:
            dependents.setdefault(other, []).append(flag_id)
    unresolvable = {flag_id for flag_id in flags if None in dependencies.get(flag_id, ())}
    ready = [flag_id for flag_id, others in waiting.items() if not others]
    order: list[int] = []
    for flag_id in ready:  # grows while it is walked
        order.append(flag_id)
        for dependent in dependents.get(flag_id, ()):
            waiting[dependent].discard(flag_id)
            if flag_id in unresolvable:
                unresolvable.add(dependent)
            if not waiting[dependent]:
                ready.append(dependent)
    left = [flag_id for flag_id in flags if waiting[flag_id]]
    return order + left, frozenset(unresolvable | set(left))
