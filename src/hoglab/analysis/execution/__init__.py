"""Questions answered on the event store: resolved, run with limits, sharing one look at the events."""
