"""Metrics, exposures and results: from stored events to what an experiment shows."""
