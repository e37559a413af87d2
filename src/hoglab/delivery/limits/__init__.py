"""Fairness: what one function, project or destination may take of what all share."""
