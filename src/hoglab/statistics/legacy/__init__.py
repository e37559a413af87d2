"""Results of the two metric kinds of the former engine."""
