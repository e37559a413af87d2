"""Tables beside the events: files of the server that an admin registers for metrics."""
