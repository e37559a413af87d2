"""Running the bodies of functions in processes of their own, isolated from the server.

`pool` is what the server uses; `process` is the program that runs in each of the processes, `protocol` their
messages, and `hosted` the host of a running program.
"""

__all__ = [
    "child",
    "hosted",
    "on_loop",
    "pool",
    "protocol",
    "transforming",
]
