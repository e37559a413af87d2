"""The endpoints of results: queries, daily points, recalculations, health."""
