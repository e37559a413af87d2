"""Configuration of functions: from a request body to what is stored, compiled and checked."""
