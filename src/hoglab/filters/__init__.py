"""Property filters: one model and its uses (direct evaluation, SQL, Hog)."""

from hoglab.filters.model import (
    FilterError,
    PropertyFilter,
    PropertyGroup,
    parse_filter,
    parse_filters,
    parse_group,
)

__all__ = [
    "FilterError",
    "PropertyFilter",
    "PropertyGroup",
    "parse_filter",
    "parse_filters",
    "parse_group",
]
