"""The main job on simulated traffic: a real server, the real SDK, a known truth.

`run.run_demo` starts ``hoglab serve`` as a child process, creates an experiment and a hog function over the
API, sends simulated users through the unmodified PostHog Python SDK, and compares what the server reports
with what the simulation did.
"""

from hoglab.demo.run import DemoError, DemoOptions, run_demo

__all__ = ["DemoError", "DemoOptions", "run_demo"]
