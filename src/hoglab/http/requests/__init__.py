"""Requests: who sent them, and their bodies within limits."""
