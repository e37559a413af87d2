"""The partials and values of each kind of metric."""
