"""Hog functions: their API, their templates, and their compilation for the machines that run them."""
