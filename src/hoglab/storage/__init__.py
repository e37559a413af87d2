"""Engines and protocols: metadata database, event log, event store and invocation queue.

Each engine stands behind a small protocol with the embedded implementation beside it, so that a
scale-out engine is a second file and not a second design.
"""
