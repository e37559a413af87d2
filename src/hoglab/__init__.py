"""hoglab: a self-hosted, PostHog-compatible server for experiments and event functions."""

__version__ = "0.1.0"
