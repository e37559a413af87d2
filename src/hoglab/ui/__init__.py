"""The web UI: built files, how they are served, and the policy that they are served with."""
