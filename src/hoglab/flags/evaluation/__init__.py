"""Evaluation endpoints: what SDKs and browsers ask for."""
