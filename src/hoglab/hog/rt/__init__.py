"""What compiled Hog programs need while they run."""
