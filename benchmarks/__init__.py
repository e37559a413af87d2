"""One runnable file per claim. Each prints its figures beside a named reference of the same run."""

import sys

import structlog

# Processes that a benchmark starts tell their port on standard output, which nobody reads after that.
structlog.configure(
    wrapper_class=structlog.make_filtering_bound_logger("warning"),
    logger_factory=structlog.PrintLoggerFactory(sys.stderr),
)
