"""Definitions of experiments: metrics, criteria, the part of a flag."""
