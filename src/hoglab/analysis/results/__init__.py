"""The results of a whole experiment in one answer: metrics, exposures, health and verdict."""
