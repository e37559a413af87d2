"""Execution of the programs of functions: on one event, on many, turn by turn."""
