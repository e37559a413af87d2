"""Endpoints of experiments, holdouts and saved metrics."""
