"""The ``filters`` of a flag as they go on the wire: which keys there are, and what each is for.

Documents, and the search for misspelt keys, are made from these models; `validation` checks what they hold.
"""

from typing import Any, ClassVar

from hoglab.http.fields.fields import WireModel
from hoglab.http.fields.notes import Note, Notes
from hoglab.http.fields.property_filters import WirePropertyFilter

_NOTES: Notes = {
    "groups": Note("Release groups; the first that lets somebody in decides.", []),
    "properties": Note("What the person or group must be like; all must hold.", []),
    "rollout_percentage": Note("The share that it is for; null and missing mean 100.", 50),
    "variant": "The variant that everybody in this group gets; null to draw one.",
    "aggregation_group_type_index": "The group type that it is about; null for persons.",
    "description": "What the release group is for.",
    "sort_key": "Kept for clients that set it.",
    "exposure_frozen": "Whether an experiment closed this group to new people.",
    "exposure_frozen_cohort": "The cohort of those who were in before.",
    "multivariate": "The variants; null for a flag that is on or off.",
    "variants": Note("The variants, whose shares make 100.", []),
    "payloads": Note("JSON as text that comes with a variant; of a boolean flag with `true`.", {}),
    "holdout": "The holdout whose people get no variant; null for none.",
    "exclusion_percentage": Note("The share of everybody who is held out.", 10),
    "early_exit": "Whether a group whose conditions hold but whose share is over ends the search.",
    "feature_enrollment": "Whether people who enrolled by themselves get it whatever the groups say.",
    "super_groups": "The older form of enrolment; one group.",
    "version": "The version of this form; 1.",
    "key": Note("The name of the variant.", "control"),
    "name": "Display name.",
    "id": Note("The id of the holdout.", 1),
}


class FlagVariant(WireModel):
    """One variant of a flag."""

    notes = _NOTES
    closed = True
    unused = frozenset({"split_percent"})

    key: Any = None
    name: Any = None
    rollout_percentage: Any = None


class FlagVariants(WireModel):
    """The variants of a flag."""

    notes = _NOTES
    closed = True

    variants: list[FlagVariant] | None = None


class ReleaseGroup(WireModel):
    """A condition set: whom it is about, and for which share of them the flag is on."""

    notes = _NOTES
    closed = True
    unused = frozenset({"users_affected"})
    mistakable: ClassVar[dict[str, str]] = {
        "rollout": "rollout_percentage",
        "percentage": "rollout_percentage",
        "percent": "rollout_percentage",
        "filters": "properties",
        "conditions": "properties",
    }

    properties: list[WirePropertyFilter] | None = None
    rollout_percentage: Any = None
    variant: Any = None
    aggregation_group_type_index: Any = None
    description: Any = None
    sort_key: Any = None
    exposure_frozen: Any = None
    exposure_frozen_cohort: Any = None


class HeldOut(WireModel):
    """The holdout of a flag, and its share."""

    notes = _NOTES
    closed = True

    id: Any = None
    exclusion_percentage: Any = None


class FlagFilters(WireModel):
    """Release conditions of a flag, and its variants."""

    notes = _NOTES
    closed = True
    unused = frozenset({"holdout_groups"})

    groups: list[ReleaseGroup] | None = None
    multivariate: FlagVariants | None = None
    payloads: Any = None
    aggregation_group_type_index: Any = None
    holdout: HeldOut | None = None
    early_exit: Any = None
    feature_enrollment: Any = None
    super_groups: list[ReleaseGroup] | None = None
    version: Any = None
