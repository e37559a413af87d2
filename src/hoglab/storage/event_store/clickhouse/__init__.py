"""The event store in ClickHouse, over HTTP with the official client."""
