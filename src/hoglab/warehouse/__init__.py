"""Warehouse tables: files of the server that an admin registers for metrics."""
