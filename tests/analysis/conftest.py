"""Preparations for the tests of results."""

from hoglab.hog.stack import ensure_stack

ensure_stack()  # before Hypothesis looks at the recursion limit: reading an expression raises it
