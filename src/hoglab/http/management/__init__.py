"""The management API: routes, access checks, and the call of a handler."""
