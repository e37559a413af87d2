"""Endpoints of functions and their templates."""
