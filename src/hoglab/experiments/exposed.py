"""Cohorts of the persons who were exposed to an experiment (spec experiments-api 6.8, 8.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hoglab.experiments import store
from hoglab.experiments.definitions import flag_config
from hoglab.experiments.definitions.fingerprint import (
    DEFAULT_EXPOSURE_EVENT,
    DEFAULT_EXPOSURES,
    WRITTEN_EXPOSURE_EVENT,
)
from hoglab.experiments.wire.presentation import live_key
from hoglab.filters import PropertyFilter, parse_filter
from hoglab.http.errors import validation_error
from hoglab.http.fields.dates import format_offset
from hoglab.http.fields.wire import user_object
from hoglab.people import cohorts
from hoglab.people.cohorts.routes import cohort_object

if TYPE_CHECKING:
    from datetime import datetime

    from hoglab.experiments.actor import Actor
    from hoglab.experiments.service import ExperimentService
    from hoglab.experiments.store import ExperimentRow
    from hoglab.flags.store import FlagRow
    from hoglab.http.identity import Project

Performed = Callable[["Project", PropertyFilter], Iterable[UUID]]
"""Finds the persons of a project who did what a behavioural rule says. Raises `ApiError` when it cannot."""

EVENTS, ACTIONS = "events", "actions"

GAVE_A_VARIANT: Mapping[str, Any] = {
    "key": "$feature_flag_response",
    "operator": "is_not",
    "value": ["", "true", "false"],
    "type": "event",
}
"""The filter of flag calls that gave a variant."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """The event or action that exposes people to an experiment."""

    key: str | int
    event_type: str
    filters: list[Any]
    variant_property: str
    """Property of the event that holds the variant."""

    def rule(self, start: datetime) -> dict[str, Any]:
        """Return the rule of a cohort: this exposure, since the start."""
        return {
            "type": "behavioral",
            "value": "performed_event",
            "key": self.key,
            "negation": False,
            "event_type": self.event_type,
            "event_filters": self.filters,
            "explicit_datetime": format_offset(start),
        }

    def with_variants(self, keys: list[str]) -> Exposure:
        """Return a copy for exposures to one of these variants alone, without people whom the flag kept out."""
        wanted = {"key": self.variant_property, "value": keys, "operator": "exact", "type": "event"}
        return replace(self, filters=[*self.filters, wanted])


def exposures_of(row: ExperimentRow, flag: FlagRow) -> tuple[Exposure, ...]:
    """Return the exposures of an experiment, any of which counts.

    They follow from the custom filter of ``parameters``, else from the criteria, else they are calls of the flag.

    Written exposures are copies of calls that gave a variant. Results count the calls while there are no copies;
    here both make a member, for a person with the copy has made the call (spec experiment-results 2.2).
    """
    key = live_key(flag.key)
    custom = _custom(row)
    if custom is not None and custom[0] not in DEFAULT_EXPOSURES:
        return (Exposure(*custom, variant_property=f"$feature/{key}"),)
    event, _, filters = custom or (DEFAULT_EXPOSURE_EVENT, EVENTS, [])
    called = {"key": "$feature_flag", "value": [key], "operator": "exact", "type": "event"}
    first = Exposure(event, EVENTS, [called, *filters], "$feature_flag_response")
    if event != WRITTEN_EXPOSURE_EVENT:
        return (first,)
    return (first, replace(first, key=DEFAULT_EXPOSURE_EVENT, filters=[*first.filters, GAVE_A_VARIANT]))


def _custom(row: ExperimentRow) -> tuple[str | int, str, list[Any]] | None:
    custom = (row.parameters or {}).get("custom_exposure_filter")
    if isinstance(custom, dict):
        for event_type in (EVENTS, ACTIONS):
            for entry in custom.get(event_type) or []:
                if not isinstance(entry, dict):
                    continue
                key = entry.get("id")
                if event_type == ACTIONS:
                    if not str(key).isdecimal():
                        raise validation_error("Invalid action ID")
                    key = int(str(key))
                return key or "", event_type, entry.get("properties") or []
    config = (row.exposure_criteria or {}).get("exposure_config")
    if isinstance(config, Mapping):
        if config.get("kind") == "ActionsNode":
            return config["id"], ACTIONS, config.get("properties") or []
        return config["event"], EVENTS, config.get("properties") or []
    return None


def exposed_persons(
    performed: Performed, project: Project, row: ExperimentRow, flag: FlagRow
) -> Iterable[UUID]:
    """Find the persons who saw a variant since the start, test accounts included: a frozen flag must serve them all."""
    if row.start_date is None:
        return ()
    keys, start = flag_config.variant_keys(flag.filters), row.start_date
    rules = (exposure.with_variants(keys).rule(start) for exposure in exposures_of(row, flag))
    return {person for rule in rules for person in performed(project, parse_filter(rule))}


class ExposureCohorts:
    """Dynamic cohorts of everybody who was exposed."""

    def __init__(self, service: ExperimentService) -> None:
        self._service = service

    def create(self, actor: Actor, experiment_id: int) -> dict[str, Any]:
        """Create the cohort of an experiment; its members are found in the background. Raises 400, 404."""
        with self._service.database.write() as tx:
            row = self._service.to_change(tx, actor, experiment_id)
            flag = store.flags(tx.connection, [row.feature_flag_id]).get(row.feature_flag_id)
            if flag is None:
                raise validation_error("Experiment does not have a feature flag")
            if row.start_date is None:
                raise validation_error("Experiment does not have a start date")
            known = row.exposure_cohort_id
            if known is not None and cohorts.existing(tx.connection, row.project_id, [known]):
                raise validation_error("Experiment already has an exposure cohort")
            rules = [exposure.rule(row.start_date) for exposure in exposures_of(row, flag)]
            user = actor.principal.user
            cohort = self._service.cohorts.create_in(
                tx,
                actor.project,
                user,
                {
                    "name": f'Users exposed to experiment "{row.name}"',
                    "filters": {"properties": {"type": "OR", "values": [{"type": "OR", "values": rules}]}},
                },
            )
            self._service.save(tx, actor, row, {"exposure_cohort_id": cohort.id})
        return {"cohort": cohort_object(cohort, user_object(user), [row.id])}
