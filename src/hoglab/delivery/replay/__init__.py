"""Work on the past: backfills, and reruns of past runs."""

from hoglab.delivery.replay import broadcast
from hoglab.delivery.replay.backfills import Backfills
from hoglab.delivery.replay.reruns import MAX_IDS, RerunFilter, dry_run, rerun

__all__ = [
    "MAX_IDS",
    "Backfills",
    "RerunFilter",
    "broadcast",
    "dry_run",
    "rerun",
]
