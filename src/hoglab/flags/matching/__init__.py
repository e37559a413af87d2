"""Matching: the value of a flag for somebody, and what it is computed from."""
