"""Organizations, projects, users, personal API keys, and the log of who changed what."""
