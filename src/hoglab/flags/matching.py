"""The rules that give a flag its value for one subject (spec: sdk-wire 3.3, 3.4, 3.10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import structlog

from hoglab.filters.evaluate import MISSING
from hoglab.flags.checks import UNEVALUABLE
from hoglab.flags.definition import CompiledFlag, Condition
from hoglab.flags.hashing import fraction, holdout_hash
from hoglab.flags.outcome import GROUPS_SKIPPED, FlagFailure, Outcome, Reason
from hoglab.flags.subject import StoredFactsError, Subject

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Stage:
    """A flag in its turn: everything it depends on comes before it."""

    flag: CompiledFlag
    shown: bool
    """Whether the caller asked for it; the others are there for those that depend on them."""
    wanted: bool
    """Whether a later flag depends on its value."""
    resolvable: bool = True
    """False when a flag that it depends on, at any distance, is missing or depends on itself."""


def evaluate(stages: Iterable[Stage], subject: Subject) -> tuple[list[Outcome], bool]:
    """Outcomes of the shown flags, and whether any of them failed. Never raises."""
    outcomes: list[Outcome] = []
    any_failed = False
    for stage in stages:
        flag = stage.flag
        if not flag.active:
            outcome = flag.outcome(False, Reason.DISABLED)
        elif not stage.resolvable:
            outcome = flag.outcome(False, Reason.MISSING_DEPENDENCY)
        else:
            try:
                outcome = match_flag(flag, subject)
            except Exception as error:
                outcome = _failed(flag, error)
        if stage.wanted and not outcome.failed:
            subject.values[flag.id] = outcome.value
        if stage.shown:
            outcomes.append(outcome)
            any_failed = any_failed or outcome.failed
    return outcomes, any_failed


def _failed(flag: CompiledFlag, error: Exception) -> Outcome:
    if isinstance(error, FlagFailure):
        return flag.failure(error)
    if isinstance(error, StoredFactsError):
        _log.warning("flag_lookup_failed", flag_id=flag.id, error=str(error))
        return flag.failure(FlagFailure(Reason.DATABASE_ERROR))
    _log.error("flag_evaluation_failed", flag_id=flag.id, exc_info=error)
    return flag.failure(FlagFailure(Reason.EVALUATION_ERROR))


def match_flag(flag: CompiledFlag, subject: Subject) -> Outcome:
    """The value of an active flag whose dependencies have been evaluated. Raises `FlagFailure`."""
    if flag.is_special:
        decided = _before_conditions(flag, subject)
        if decided is not None:
            return decided
    best, best_index = Reason.NO_GROUP_TYPE, None
    groups_skipped = False
    for condition in flag.conditions:
        reason = _match(flag, condition, subject)
        if reason is Reason.CONDITION_MATCH:
            return flag.outcome(True, reason, condition.index, _variant(flag, condition, subject))
        groups_skipped = groups_skipped or reason is Reason.NO_GROUP_TYPE
        if reason.rank >= best.rank:
            best, best_index = reason, condition.index
        if (
            flag.early_exit
            and reason is Reason.OUT_OF_ROLLOUT
            and not _lacks_device(flag, condition, subject)
        ):
            break
    if groups_skipped and best is Reason.NO_CONDITION_MATCH:
        return flag.outcome(False, best, best_index, description=GROUPS_SKIPPED)
    return flag.outcome(False, best, best_index)


def _before_conditions(flag: CompiledFlag, subject: Subject) -> Outcome | None:
    """What decides before the conditions are looked at, in this order."""
    if flag.broken is not None:
        raise FlagFailure(Reason.EVALUATION_ERROR, flag.broken)
    return _enrollment(flag, subject) or _super_condition(flag, subject) or _holdout(flag, subject)


def _enrollment(flag: CompiledFlag, subject: Subject) -> Outcome | None:
    if flag.enrollment_key is None:
        return None
    value = subject.person_property(flag.enrollment_key)
    if value is MISSING:
        return None
    return flag.outcome(value is True or value == "true", Reason.SUPER_CONDITION, 0)


def _super_condition(flag: CompiledFlag, subject: Subject) -> Outcome | None:
    rule = flag.super_condition
    if rule is None or all(subject.person_property(key) is MISSING for key in rule.keys):
        return None
    if _match(flag, rule.condition, subject) is not Reason.CONDITION_MATCH:
        return flag.outcome(False, Reason.SUPER_CONDITION, 0)
    return flag.outcome(True, Reason.SUPER_CONDITION, 0, _variant(flag, rule.condition, subject))


def _holdout(flag: CompiledFlag, subject: Subject) -> Outcome | None:
    holdout = flag.holdout
    if holdout is None:
        return None
    identifier = _holdout_identifier(flag, subject)
    if identifier is None:
        return None
    if holdout.percentage != 100 and holdout_hash(identifier) > holdout.percentage / 100:
        return None
    return flag.outcome(True, Reason.HOLDOUT, None, holdout.variant)


def _match(flag: CompiledFlag, condition: Condition, subject: Subject) -> Reason:
    if condition.aggregation is not None:
        if subject.group_key(condition.aggregation) is None:
            return Reason.NO_GROUP_TYPE
    elif flag.by_device and subject.device_id is None:
        return Reason.OUT_OF_ROLLOUT
    for check in condition.checks:
        try:
            if not check(subject):
                return Reason.NO_CONDITION_MATCH
        except UNEVALUABLE:
            return Reason.NO_CONDITION_MATCH
    if condition.rollout_percentage == 100:
        return Reason.CONDITION_MATCH
    identifier = _identifier(flag, condition, subject)
    place = fraction(flag.key_prefix + identifier) if identifier else 0.0
    return Reason.CONDITION_MATCH if place <= condition.rollout_percentage / 100 else Reason.OUT_OF_ROLLOUT


def _lacks_device(flag: CompiledFlag, condition: Condition, subject: Subject) -> bool:
    """Whether a condition was passed over for want of a device id, rather than missed by its rollout."""
    return condition.aggregation is None and flag.by_device and subject.device_id is None


def _variant(flag: CompiledFlag, condition: Condition, subject: Subject) -> str | None:
    """The variant that the condition fixes, else by hash; None when the shares do not reach that far."""
    if condition.variant is not None or not flag.variants:
        return condition.variant
    identifier = _identifier(flag, condition, subject)
    place = fraction(flag.key_prefix + identifier + b"variant") if identifier else 0.0
    for key, bound in flag.variants:
        if place < bound:
            return key
    return None


def _identifier(flag: CompiledFlag, condition: Condition, subject: Subject) -> bytes:
    """What is hashed (spec: sdk-wire 3.3)."""
    if condition.by_distinct_id:
        return subject.id_bytes
    if condition.aggregation is not None:
        return (subject.group_key(condition.aggregation) or "").encode()
    if flag.by_device:
        return (subject.device_id or "").encode()
    return subject.sticky_id(flag.key).encode()


def _holdout_identifier(flag: CompiledFlag, subject: Subject) -> str | None:
    """Group key, device id or distinct id as the flag says; stored bucketing ids do not count here."""
    if flag.aggregation is not None:
        return subject.group_key(flag.aggregation)
    if flag.by_device:
        return subject.device_id
    return subject.anonymous_id if flag.continuity else subject.request.distinct_id


def order_stages(
    flags: Mapping[int, CompiledFlag], dependencies: Mapping[int, frozenset[int | None]]
) -> tuple[list[int], frozenset[int]]:
    """Flag ids so that each comes after those it depends on, and the ids that can never be resolved.

    ``dependencies`` holds None for a flag that does not exist. Unresolvable are flags that miss a dependency,
    that depend on themselves, and those that depend on one of these. Inactive flags depend on nothing: they
    are off.
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
