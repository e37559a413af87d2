"""Plans of experiments from the history of a project: baselines, simulated people, power."""

from hoglab.analysis.planning.experiment_plan import plan_answer
from hoglab.analysis.planning.experiment_simulation import simulation_answer

__all__ = [
    "plan_answer",
    "simulation_answer",
]
