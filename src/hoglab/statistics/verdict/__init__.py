"""Verdicts, what the results of an experiment say to do: pure functions from evidence.

    plan = Plan.of(running_time_calculation, default_effect=0.3)
    number, progress = standing(plan, config, looks)  # for a method of a single look that of the planned end
    found = verdict(Case(config, "control", metrics[number], progress))
    found.state, found.headline, found.action

docs/statistics.md, "The verdict", has the rules, and how often they err.
"""

from hoglab.statistics.verdict.guardrails import largest_loss, safety_config
from hoglab.statistics.verdict.harm import HARM_LEVEL, anytime_p_value
from hoglab.statistics.verdict.model import (
    Action,
    Alarm,
    Amendment,
    Case,
    Concern,
    Contest,
    Decision,
    Evidence,
    MetricDecision,
    MetricEvidence,
    NextAction,
    Numbers,
    PastDecision,
    Reason,
    State,
    VariantDecision,
    VariantVerdict,
    Verdict,
)
from hoglab.statistics.verdict.planned import (
    LEAST_POWER,
    Look,
    Measured,
    Plan,
    PlannedPower,
    PlanSource,
    Progress,
    analyses,
    judging_at,
    people_to_show,
    planned_end,
    planned_power,
    progress_at,
    shipping_config,
    standing,
)
from hoglab.statistics.verdict.rules import verdict

__all__ = [
    "HARM_LEVEL",
    "LEAST_POWER",
    "Action",
    "Alarm",
    "Amendment",
    "Case",
    "Concern",
    "Contest",
    "Decision",
    "Evidence",
    "Look",
    "Measured",
    "MetricDecision",
    "MetricEvidence",
    "NextAction",
    "Numbers",
    "PastDecision",
    "Plan",
    "PlanSource",
    "PlannedPower",
    "Progress",
    "Reason",
    "State",
    "VariantDecision",
    "VariantVerdict",
    "Verdict",
    "analyses",
    "anytime_p_value",
    "judging_at",
    "largest_loss",
    "people_to_show",
    "planned_end",
    "planned_power",
    "progress_at",
    "safety_config",
    "shipping_config",
    "standing",
    "verdict",
]
