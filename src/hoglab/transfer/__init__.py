"""Events from files into a server, and out of a data directory into files."""
