"""Endpoints of feature flags in the management API."""
