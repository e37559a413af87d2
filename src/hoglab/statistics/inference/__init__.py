"""Inference: the comparison of two groups, by method."""
