"""Sessions of browsers: how somebody logs in, what a session may do, and when it ends."""
