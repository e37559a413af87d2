"""What every endpoint shares: the application, access checks, errors, fields, pages, throttling, dates."""
