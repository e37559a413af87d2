"""Runs: their state, and what they leave behind: logs, metrics, results, dead letters."""
