"""Feature flags compiled for matching (spec: sdk-wire 3.1, 3.3, 3.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from hoglab.filters.evaluate import number_of
from hoglab.filters.model import FilterError, parse_filters
from hoglab.flags.matching.checks import Check, CheckCompiler, CompiledCheck
from hoglab.flags.matching.hashing import highest_within, lowest_beyond
from hoglab.flags.matching.outcome import FlagFailure, FlagMetadata, FlagOutcome, FlagReason
from hoglab.flags.payloads import REDACTED_PAYLOAD

ENROLLMENT_PREFIX = "$feature_enrollment/"

_INHERIT = object()

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FlagSource:
    """A stored flag and what belongs to it, as far as matching needs it."""

    id: int
    key: str
    filters: Mapping[str, Any]
    active: bool
    version: int
    ensure_experience_continuity: bool = False
    bucketing_identifier: str | None = None
    evaluation_runtime: str | None = None
    evaluation_contexts: tuple[str, ...] = ()
    has_encrypted_payloads: bool = False
    has_experiment: bool = False
    experiment_id: int | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition set: every check must hold, then the rollout decides."""

    checks: tuple[Check, ...]
    limit: bytes | None
    """The last place inside of the rollout (see `hashing`); None for everybody."""
    aggregation: int | None
    by_distinct_id: bool
    """Whether the request's distinct id itself is hashed: the plain case."""
    missed: FlagOutcome
    out_of_rollout: FlagOutcome
    no_group: FlagOutcome
    matched: FlagOutcome
    """Outcome of a match when no variant is to be drawn, or the shares do not reach far enough."""
    split: tuple[tuple[bytes, FlagOutcome], ...]
    """Ends of the variants, with their outcomes; empty when none is to be drawn."""


@dataclass(frozen=True, slots=True)
class Holdout:
    """The share of people (in percent) that never sees the flag's variants, and the name they get."""

    variant: str
    percentage: float


@dataclass(frozen=True, slots=True)
class SuperCondition:
    """The legacy form of early access: decides for everybody who has one of the keys."""

    keys: tuple[str, ...]
    condition: Condition


class CompiledFlag:
    """One flag, ready to be matched. Its outcomes are made on first use and then shared."""

    def __init__(self, source: FlagSource, compiler: CheckCompiler) -> None:
        self.id = source.id
        self.key = source.key
        self.active = source.active
        self.key_prefix = f"{source.key}.".encode()
        self.continuity = source.ensure_experience_continuity
        self.by_device = source.bucketing_identifier == "device_id"
        self.runtime = source.evaluation_runtime or "all"
        self.contexts = frozenset(source.evaluation_contexts)
        self.depends_on: frozenset[str] = frozenset()
        self.broken: str | None = None
        """Reason for which the definition cannot be evaluated; None for a valid one."""
        self.conditions: tuple[Condition, ...] = ()
        self.variants: tuple[tuple[str, bytes], ...] = ()
        """Variant keys with the place where their share ends, in stored order."""
        self.aggregation: int | None = None
        self.holdout: Holdout | None = None
        self.enrollment_key: str | None = None
        self.super_condition: SuperCondition | None = None
        self.early_exit = False
        self._payloads: Mapping[str, str] = {}
        self._metadata = FlagMetadata(source.id, source.version, source.has_experiment, source.experiment_id)
        self._outcomes: dict[tuple[FlagReason, int | None, str | bool, str | None], FlagOutcome] = {}
        self.undecided = self.outcome(False, FlagReason.NO_GROUP_TYPE)
        """Outcome of the flag when it has no condition that decides."""
        try:
            self._compile(source, compiler)
        except (FilterError, _DefinitionError) as error:
            self._break(str(error))
        except (
            Exception
        ):  # MemoryError and RecursionError, too: one flag must not take the project's others away
            _log.exception("flag_not_compiled", flag_id=source.id)
            self._break("The definition cannot be evaluated")
        self.is_special = any((self.broken, self.enrollment_key, self.super_condition, self.holdout))

    def _break(self, reason: str) -> None:
        self.broken = reason
        self.conditions = ()

    def _compile(self, source: FlagSource, compiler: CheckCompiler) -> None:
        filters = source.filters
        self.aggregation = _group_index(filters.get("aggregation_group_type_index"))
        self.variants = _variants(filters)
        self.holdout = _holdout(filters)
        self.early_exit = filters.get("early_exit") is True
        self._payloads = _payloads(filters, redacted=source.has_encrypted_payloads)
        if filters.get("feature_enrollment") is True:
            self.enrollment_key = ENROLLMENT_PREFIX + source.key
        self.conditions = tuple(
            self._condition(raw, index, compiler) for index, raw in enumerate(_objects(filters, "groups"))
        )
        for raw in _objects(filters, "super_groups")[:1]:
            self.super_condition = self._super_condition(raw, compiler)

    def _condition(
        self,
        raw: Mapping[str, Any],
        index: int,
        compiler: CheckCompiler,
        on_match: FlagReason = FlagReason.CONDITION_MATCH,
    ) -> Condition:
        inherited = raw.get("aggregation_group_type_index", _INHERIT)
        aggregation = self.aggregation if inherited is _INHERIT else _group_index(inherited)
        share = _percentage(raw.get("rollout_percentage"))
        wanted = raw.get("variant")
        fixed = wanted if any(key == wanted for key, _ in self.variants) else None
        drawn = self.variants if fixed is None else ()
        return Condition(
            tuple(check.test for check in self._checks(raw, f"groups[{index}]", aggregation, compiler)),
            None if share == 100 else highest_within(share / 100),
            aggregation,
            by_distinct_id=aggregation is None and not self.by_device and not self.continuity,
            missed=self.outcome(False, FlagReason.NO_CONDITION_MATCH, index),
            out_of_rollout=self.outcome(False, FlagReason.OUT_OF_ROLLOUT, index),
            no_group=self.outcome(False, FlagReason.NO_GROUP_TYPE, index),
            matched=self.outcome(True, on_match, index, fixed),
            split=tuple((end, self.outcome(True, on_match, index, key)) for key, end in drawn),
        )

    def _super_condition(self, raw: Mapping[str, Any], compiler: CheckCompiler) -> SuperCondition | None:
        keys = tuple(leaf.key for leaf in parse_filters(raw.get("properties")).leaves())
        if not keys:
            return None
        person_level = {**raw, "aggregation_group_type_index": None}
        return SuperCondition(keys, self._condition(person_level, 0, compiler, FlagReason.SUPER_CONDITION))

    def _checks(
        self, raw: Mapping[str, Any], path: str, aggregation: int | None, compiler: CheckCompiler
    ) -> list[CompiledCheck]:
        tree = parse_filters(raw.get("properties"), f"{path}.properties", default_type="person")
        checks = [compiler.check(leaf, aggregation) for leaf in tree.leaves()]
        for check in checks:
            self.depends_on |= check.depends_on
        return checks

    def outcome(
        self,
        enabled: bool,
        reason: FlagReason,
        index: int | None = None,
        variant: str | None = None,
        description: str | None = None,
    ) -> FlagOutcome:
        """Return the one `FlagOutcome` of these facts; its payload is that of the variant, or of ``true``."""
        place = (reason, index, enabled if variant is None else variant, description)
        outcome = self._outcomes.get(place)
        if outcome is None:
            payload = self._payloads.get("true" if variant is None else variant) if enabled else None
            outcome = self._outcomes[place] = FlagOutcome(
                self.key,
                self._metadata,
                enabled=enabled,
                variant=variant,
                reason=reason,
                condition_index=index,
                payload=payload,
                description=description,
            )
        return outcome

    def failure(self, failure: FlagFailure) -> FlagOutcome:
        """Return the record of a flag whose value is unknown."""
        return FlagOutcome(
            self.key,
            self._metadata,
            enabled=False,
            variant=None,
            reason=failure.reason,
            condition_index=None,
            description=failure.detail,
        )


class _DefinitionError(ValueError):
    """The stored filters of a flag have a shape that cannot be evaluated."""


def _objects(filters: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    values = filters.get(name) or []
    if not isinstance(values, list) or not all(isinstance(value, Mapping) for value in values):
        raise _DefinitionError(f"{name} must be a list of objects")
    return values


def _percentage(value: Any) -> float:
    """Return a rollout percentage; null and absent are everybody."""
    if value is None:
        return 100.0
    number = number_of(value)
    if number is None:
        raise _DefinitionError("rollout_percentage must be a number or null")
    return number


def _group_index(value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise _DefinitionError("aggregation_group_type_index must be an integer or null")


def _variants(filters: Mapping[str, Any]) -> tuple[tuple[str, bytes], ...]:
    bounds = []
    bound = 0.0
    for variant in _objects(filters.get("multivariate") or {}, "variants"):
        key = variant.get("key")
        if not isinstance(key, str):
            raise _DefinitionError("variant keys must be strings")
        bound += _percentage(variant.get("rollout_percentage")) / 100
        bounds.append((key, lowest_beyond(bound)))
    return tuple(bounds)


def _holdout(filters: Mapping[str, Any]) -> Holdout | None:
    holdout = filters.get("holdout")
    if isinstance(holdout, Mapping):
        share = number_of(holdout.get("exclusion_percentage"))
        if share is None or holdout.get("id") is None:
            return None
        return Holdout(f"holdout-{holdout['id']}", min(max(share, 0.0), 100.0))
    for legacy in _objects(filters, "holdout_groups")[:1]:
        share = number_of(legacy.get("rollout_percentage"))
        variant = legacy.get("variant")
        if share is not None and isinstance(variant, str):
            return Holdout(variant, min(max(share, 0.0), 100.0))
    return None


def _payloads(filters: Mapping[str, Any], *, redacted: bool) -> Mapping[str, str]:
    payloads = filters.get("payloads")
    if not isinstance(payloads, Mapping):
        return {}
    return {
        key: REDACTED_PAYLOAD if redacted else value
        for key, value in payloads.items()
        if isinstance(value, str)
    }
