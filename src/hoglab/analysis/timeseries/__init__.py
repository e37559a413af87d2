"""Daily points of metrics: computed, stored, scheduled, and answers that are cached."""
