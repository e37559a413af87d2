"""Metrics, exposures and results: from stored events to what an experiment shows.

Each wing imports only those below it:

- ``api``: the endpoints.
- ``results``: the results of a whole experiment, its exposures, health and verdict.
- ``planning``: plans of experiments from what happened before.
- ``trends``: how many events, or people with such an event, over time.
- ``timeseries``: daily points, computed, stored and scheduled; answers that are cached.
- ``execution``: questions answered on the event store.
- ``incremental``: materialized parts of answers, so that an answer costs no more than the new events.
- ``definitions``: questions read from the definitions of users.
- ``query``: questions as data, and the statements that answer them.
"""
