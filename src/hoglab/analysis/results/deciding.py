"""What the results of an experiment say at the moment of a decision, as it is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hoglab.http.errors import WireError

if TYPE_CHECKING:
    from hoglab.analysis.results.gathering import ExperimentResults
    from hoglab.experiments.service import Judge
    from hoglab.http.identity import Project

BUDGET_S = 5.0
"""Time for which a decision waits for what is not computed yet; without it the record has no verdict."""
_OF_METRIC = (
    "uuid",
    "name",
    "role",
    "margin",
    "goal",
    "metric_type",
    "fingerprint",
    "status",
    "computed_at",
    "result",
)
_OF_EXPOSURES = ("total_exposures", "sample_ratio_mismatch", "phases")


def judge_by(results: ExperimentResults) -> Judge:
    """Return the judge of decisions that reads results: verdict, method, and metrics with their sums."""

    def judge(project: Project, experiment_id: int) -> dict[str, Any] | None:
        try:
            answer = results.read(project, experiment_id)
        except WireError:  # what cannot be computed keeps nobody from deciding
            return None
        exposures: Mapping[str, Any] = answer["exposures"] or {}
        return {
            "status": answer["status"],
            "statistics": answer["statistics"],
            "verdict": answer["verdict"],
            "exposures": {name: exposures.get(name) for name in _OF_EXPOSURES},
            "metrics": [{name: metric[name] for name in _OF_METRIC} for metric in answer["metrics"]],
        }

    return judge
