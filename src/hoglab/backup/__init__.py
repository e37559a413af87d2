"""Copies of a data directory: made beside a running server, verified, restored; and the check of its files."""
