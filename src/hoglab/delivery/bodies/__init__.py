"""Running the bodies of functions in processes of their own, where they can do no harm.

`pool` is what the server uses; `process` is the program that runs in each of the processes, `protocol` what the
two say to each other, and `hosted` what programs find there.
"""

__all__ = [
    "child",
    "hosted",
    "on_loop",
    "pool",
    "protocol",
    "transforming",
]
