"""Matching: the value of a flag for a subject, and the data that it is computed from."""
