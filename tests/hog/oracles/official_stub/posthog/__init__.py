"""Stands in for PostHog's own package in the process of the official parser, and nowhere else."""
