"""Sufficient statistics of one variant."""
