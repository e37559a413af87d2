"""Planning: power, sample size and running time."""
