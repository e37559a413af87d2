"""Experiments, holdouts and saved metrics: API and life cycle."""
