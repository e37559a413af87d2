"""Functions in memory, ready to run; and transformations."""
