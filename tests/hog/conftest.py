"""What all tests of the language need."""

from hoglab.hog.parser.recursion import ensure_stack

ensure_stack()  # before Hypothesis looks at the recursion limit: the first compilation changes it
