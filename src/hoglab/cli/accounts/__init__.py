"""Commands about accounts: keys, projects, and the sessions of browsers."""
