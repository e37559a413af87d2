"""Functions of dates and times."""
