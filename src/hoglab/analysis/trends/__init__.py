"""Trends: how many events, or how many people with such an event, by minute, hour or day."""
