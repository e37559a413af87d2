"""The results of a whole experiment in one answer: metrics, exposures, health and verdict."""

from hoglab.analysis.results import schemas
from hoglab.analysis.results.briefs import Briefs, BriefWriter
from hoglab.analysis.results.deciding import BUDGET_S as DECISION_BUDGET_S
from hoglab.analysis.results.deciding import judge_by
from hoglab.analysis.results.exposures import ExposureCounts
from hoglab.analysis.results.gathering import ExperimentResults
from hoglab.analysis.results.harm_watch import HarmWatch
from hoglab.analysis.results.health import ExperimentHealth
from hoglab.analysis.results.launch_checks import LaunchChecks
from hoglab.analysis.results.routes import SCOPES, experiment_results_router
from hoglab.analysis.results.summaries import ResultSummaries

__all__ = [
    "DECISION_BUDGET_S",
    "SCOPES",
    "BriefWriter",
    "Briefs",
    "ExperimentHealth",
    "ExperimentResults",
    "ExposureCounts",
    "HarmWatch",
    "LaunchChecks",
    "ResultSummaries",
    "experiment_results_router",
    "judge_by",
    "schemas",
]
