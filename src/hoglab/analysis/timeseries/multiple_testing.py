"""Corrections for having tested several metrics and variants (spec experiment-results 10).

The family of an experiment is every primary metric with every test variant. A row gets ``adjusted_p_value``
beside ``p_value`` when ``stats_config.multiple_testing_correction`` asks for it; without, rows are as PostHog's.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

from hoglab.statistics import Correction

Key = TypeVar("Key", bound=Hashable)
Result = Mapping[str, Any]


def adjusted(
    results: Mapping[Key, Result], correction: Correction, *, outside: frozenset[Key] = frozenset()
) -> dict[Key, dict[str, Any]]:
    """The results of one moment with ``adjusted_p_value`` in the rows of their variants.

    Results whose key is ``outside`` are not of the family: their rows get null. So do rows without a p-value,
    which do not count towards the size of the family.
    """
    if correction is Correction.NONE:
        return {key: dict(result) for key, result in results.items()}
    family = [
        (key, place, row.get("p_value"))
        for key, result in results.items()
        if key not in outside
        for place, row in enumerate(result["variant_results"])
    ]
    values = correction.adjust([value for _, _, value in family])
    found = {(key, place): value for (key, place, _), value in zip(family, values, strict=True)}
    return {
        key: {
            **result,
            "variant_results": [
                {**row, "adjusted_p_value": found.get((key, place))}
                for place, row in enumerate(result["variant_results"])
            ],
        }
        for key, result in results.items()
    }
