"""Incremental view maintenance: what is kept of events for a question, brought up to date by what came in since."""
