"""Definitions of experiments and metrics, read from what users wrote: questions, names, and what is wrong with them."""
