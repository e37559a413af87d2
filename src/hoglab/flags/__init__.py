"""Feature flags: their API, matching, the SDKs' evaluation endpoints, local evaluation, remote config."""
