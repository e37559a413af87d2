"""Fairness: what one of many may take of what all share, however much it wants.

- `thresholds`: dynamic thresholds, the rule that says how much of something limited one may have;
- `fair_queue`: those who wait, served in turn;
- `fair_semaphore`: places that are held by that rule, and waited for in turn; `fair_threads`: a thread pool behind one;
- `token_bucket`: a rate with a burst;
- `compute_quota`: what slow programs may compute on one batch of events; `compute_shares`: what those of one project
  may compute while others wait.

Nothing here knows what it is used for: docs/delivery.md, "How resources are shared", has the table.
"""
