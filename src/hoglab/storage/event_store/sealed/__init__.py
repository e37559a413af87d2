"""Sealed events: segments that are sorted, compressed and dropped as a whole."""
