"""Trials of functions: test runs, test cases, sample events."""
