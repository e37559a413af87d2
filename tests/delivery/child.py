"""Delivery in a process of its own, to be killed: ``python -m tests.delivery.child FOLDER STEP_S``.

Works off the queue in a directory and says ``ready``; ends when its input ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.delivery.conftest import House

from hoglab.delivery.execution.retries import RetryPolicy


def main() -> None:
    folder, key, step_s = sys.argv[1:]
    house = House(Path(folder), {"retries": RetryPolicy(step_s=float(step_s), jitter_s=0.0)}, key=key)
    house.open()
    house.delivery.start()
    print("ready", flush=True)
    sys.stdin.read()
    house.close()


if __name__ == "__main__":
    main()
