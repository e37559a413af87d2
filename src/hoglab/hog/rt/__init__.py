"""Runtime of compiled Hog programs."""
