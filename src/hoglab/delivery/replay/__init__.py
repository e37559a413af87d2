"""Work on the past: backfills, and runs that are run again."""
