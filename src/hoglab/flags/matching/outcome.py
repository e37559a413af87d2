"""Outcomes of evaluating a flag, and their form on the wire (spec: sdk-wire 2.2, 2.4)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import orjson

CONFIG_VERSION = 1
"""The format of flag definitions that we keep (spec: sdk-wire 3.13)."""


class FlagReason(Enum):
    """Reason for a flag's value. Of several misses, the one with the highest rank is reported."""

    SUPER_CONDITION = ("super_condition_value", "Super condition value", 6)
    HOLDOUT = ("holdout_condition_value", "Holdout condition value", 5)
    CONDITION_MATCH = ("condition_match", "Matched condition set", 4)
    OUT_OF_ROLLOUT = ("out_of_rollout_bound", "Out of rollout bound", 3)
    NO_CONDITION_MATCH = ("no_condition_match", "No matching condition set", 2)
    NO_GROUP_TYPE = ("no_group_type", "No group type", 1)
    DISABLED = ("flag_disabled", "Feature flag is disabled", 0)
    MISSING_DEPENDENCY = (
        "missing_dependency",
        "Flag cannot be evaluated due to missing dependency",
        -1,
    )
    # With these the value is unknown: SDKs keep the value that they had before.
    TIMEOUT = ("timeout", "The evaluation took too long", -2)
    DATABASE_ERROR = ("database_error", "Stored properties could not be read", -2)
    EVALUATION_ERROR = ("evaluation_error", "The definition of the flag could not be evaluated", -2)

    def __init__(self, code: str, description: str, rank: int) -> None:
        self.code = code
        self.description = description
        self.rank = rank

    # Members are singletons; the hash of their names would be computed in Python each time.
    __hash__ = object.__hash__

    @property
    def is_failure(self) -> bool:
        return self.rank == -2


GROUPS_SKIPPED = (
    "No matching condition set (group conditions were not evaluated because no group type was provided)"
)


class FlagFailure(Exception):  # noqa: N818 - it is an answer, not a defect
    """A flag has no value: its definition is broken, or a lookup failed. Reported on that flag alone."""

    def __init__(self, reason: FlagReason, detail: str = "") -> None:
        super().__init__(detail or reason.description)
        self.reason = reason
        self.detail = detail or reason.description


@dataclass(frozen=True, slots=True)
class FlagMetadata:
    """Metadata of a flag that every answer repeats."""

    id: int
    version: int
    has_experiment: bool
    experiment_id: int | None = None


class FlagOutcome:
    """The value of one flag, its reason and its payload. Immutable; the wire forms are encoded once.

    A flag has few possible outcomes, so they are kept with the compiled flag and shared by all requests.
    """

    def __init__(
        self,
        key: str,
        metadata: FlagMetadata,
        *,
        enabled: bool,
        variant: str | None,
        reason: FlagReason,
        condition_index: int | None,
        payload: str | None = None,
        description: str | None = None,
    ) -> None:
        self.key = key
        self.metadata = metadata
        self.enabled = enabled
        self.variant = variant
        self.reason = reason
        self.condition_index = condition_index
        self.payload = payload
        self.failed = reason.is_failure
        self.value: bool | str = enabled if variant is None else variant
        self._description = description

    @property
    def description(self) -> str:
        if self._description is not None:
            return self._description
        if self.reason is FlagReason.CONDITION_MATCH and self.condition_index is not None:
            return f"{self.reason.description} {self.condition_index + 1}"
        return self.reason.description

    def __repr__(self) -> str:
        return f"<Outcome {self.key}={self.value!r} {self.reason.code} at {self.condition_index}>"

    @cached_property
    def v2(self) -> dict[str, Any]:
        """The record of ``/flags/?v=2``."""
        record: dict[str, Any] = {
            "key": self.key,
            "enabled": self.enabled,
            "variant": self.variant,
            "reason": self._reason(),
            "metadata": {
                "id": self.metadata.id,
                "version": self.metadata.version,
                "description": None,
                "payload": self.payload,
                "has_experiment": self.metadata.has_experiment,
            },
        }
        if self.failed:
            record["failed"] = True
        return record

    @cached_property
    def typed(self) -> dict[str, Any]:
        """The record of ``/flags/?v=3`` and later, with the keys of version 2 besides."""
        metadata: dict[str, Any] = {
            "id": self.metadata.id,
            "version": self.metadata.version,
            "config_version": CONFIG_VERSION,
            "description": None,
            "payload": self.payload,
            "has_experiment": self.metadata.has_experiment,
        }
        if self.variant is not None:
            metadata["variant_key"] = self.variant
        if self.metadata.experiment_id is not None:
            metadata["experiment_id"] = self.metadata.experiment_id
        record: dict[str, Any] = {
            "key": self.key,
            "value": None if self.failed else self.value,
            "enabled": self.enabled,
            "variant": self.variant,
            "reason": self._reason(),
            "metadata": metadata,
        }
        if self.failed:
            record["failed"] = True
        return record

    @cached_property
    def v2_member(self) -> bytes:
        """``"key":{record}``, ready to be joined into the ``flags`` object."""
        return _member(self.key, self.v2)

    @cached_property
    def typed_member(self) -> bytes:
        """``"key":{record}`` of the typed record, ready to be joined into the ``flags`` object."""
        return _member(self.key, self.typed)

    def _reason(self) -> dict[str, Any]:
        return {
            "code": self.reason.code,
            "condition_index": self.condition_index,
            "description": self.description,
        }


def _member(key: str, record: dict[str, Any]) -> bytes:
    return orjson.dumps(key) + b":" + orjson.dumps(record)
