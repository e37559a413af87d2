"""Experiments, holdouts and saved metrics as they come and go on the wire."""
