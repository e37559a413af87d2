"""Secrets of functions: sealed at rest, kept out of logs."""
