"""Webhooks: requests of others that start functions."""
