"""Endpoints of delivery."""
