"""Sessions of browsers: logging in, the permissions of a session, and its end."""
