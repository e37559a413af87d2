"""Old names of settings and metrics, each of which keeps working for one release after the name was changed.

An entry is deleted with the release after the one that brought the new name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

SETTINGS: Mapping[str, str] = {"HOGLAB_RESULTS_STATE_MAX_BYTES": "HOGLAB_AGGREGATE_CACHE_MAX_BYTES"}
"""Environment variables by their old names; the values are the names of today."""
METRICS: Mapping[str, str] = {
    "hoglab_event_log_partitions_held": "hoglab_event_log_partitions_owned",
}
"""Metrics by their old names; the values are the names of today.

Both are without the suffixes ``_total``, ``_bucket``, ``_count`` and ``_sum``."""

_SUFFIXES = ("", "_total", "_created", "_bucket", "_count", "_sum")


def renamed_variables(environment: Mapping[str, str], names: Mapping[str, str] = SETTINGS) -> dict[str, str]:
    """Return the old names of settings that an environment uses, each with the name of today.

    An old name is left out where the environment has the new one as well, which counts.
    """
    given = {name.upper() for name in environment}
    return {old: new for old, new in names.items() if old in given and new not in given}


class OldMetricNames(Collector):
    """Collector that exports metrics of a registry once more, under their old names."""

    def __init__(self, registry: CollectorRegistry, names: Mapping[str, str] = METRICS) -> None:
        """Export the metrics of ``registry`` whose names are values of ``names`` under the keys of these."""
        self._registry = registry
        self._names = names

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: the names are not reserved."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Yield a copy of each renamed metric, with a help text that names the new one."""
        for old, new in self._names.items():
            wanted = self._registry.restricted_registry([new + suffix for suffix in _SUFFIXES])
            for metric in wanted.collect():
                renamed = copy(metric)
                renamed.name = old
                renamed.documentation = f"Old name of {new}, exported until the next release."
                renamed.samples = [
                    sample._replace(name=old + sample.name.removeprefix(new)) for sample in metric.samples
                ]
                yield renamed
