"""The OpenAPI document, and pages that show it."""
