"""Dispatch: from events to runs in the queue."""
