"""The ``filters`` of a flag on the wire: which keys there are, and the meaning of each.

The documents and the search for misspelt keys use these models; `validation` checks the values.
"""

from typing import Any, ClassVar

from hoglab.http.fields.fields import WireModel
from hoglab.http.fields.notes import Note, Notes
from hoglab.http.fields.property_filters import WirePropertyFilter

_NOTES: Notes = {
    "groups": Note("Release groups; the first that matches decides.", []),
    "properties": Note("Conditions on the person or group; all must hold.", []),
    "rollout_percentage": Note("The share of matching subjects; null and missing mean 100.", 50),
    "variant": "The variant that everybody in this group gets; null to draw one.",
    "aggregation_group_type_index": "The type of groups that the condition is about; null for persons.",
    "description": "What the release group is for.",
    "sort_key": "Kept for clients that set it.",
    "exposure_frozen": "Whether an experiment closed this group to new people.",
    "exposure_frozen_cohort": "The cohort of people who had joined before.",
    "multivariate": "The variants; null for a flag that is on or off.",
    "variants": Note("The variants; their shares add up to 100.", []),
    "payloads": Note("JSON text that comes with a variant; for a boolean flag, with `true`.", {}),
    "holdout": "The holdout whose people get no variant; null for none.",
    "exclusion_percentage": Note("The share of all subjects that is held out.", 10),
    "early_exit": "Whether a group ends the search when its conditions hold but the subject is outside of its share.",
    "feature_enrollment": "Whether people who enrolled by themselves get the flag regardless of the groups.",
    "super_groups": "The older form of enrolment; a list of one group.",
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
    """A condition set: the subjects it is about, and the share of them for which the flag is on."""

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
