"""Passes over the tree of a program, before it is emitted: names, operators, types, effects."""
