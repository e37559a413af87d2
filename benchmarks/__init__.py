"""One runnable file per claim. Each prints its figures beside a named reference of the same run."""
