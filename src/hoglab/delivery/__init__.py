"""Running hog functions on real traffic: dispatch, durable invocations, workers, fetch, logs and metrics."""
