"""Commands about one experiment."""
