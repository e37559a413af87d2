"""Questions to the event store as data, and the statements that answer them."""
