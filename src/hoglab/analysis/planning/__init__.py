"""Plans of experiments from the history of a project: baselines, simulated people, power."""
