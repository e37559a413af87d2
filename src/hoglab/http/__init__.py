"""HTTP that every endpoint shares: application, access checks, errors, fields, pages, throttling, dates."""
