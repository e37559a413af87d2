"""Endpoints of functions and their templates."""

from hoglab.functions.api import routes, template_routes

__all__ = [
    "routes",
    "template_routes",
]
