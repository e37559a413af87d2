"""Run all benchmarks, or those named: ``python -m benchmarks [--smoke] [NAME…]``.

``--smoke`` makes each one short, and runs several at a time: it shows that they run and print their ratios, not what
the ratios are.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.temporary_files import use_memory

HERE = Path(__file__).parent
ROOT = HERE.parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="short runs")
    parser.add_argument("names", nargs="*", help="benchmarks to run (default: all)")
    options = parser.parse_args()

    known = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))
    if unknown := set(options.names) - set(known):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))} (there are: {', '.join(known)})")

    names = options.names or known
    failed = run_together(names) if options.smoke else [name for name in names if not run_alone(name)]
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def run_alone(name: str) -> bool:
    """Run one benchmark while nothing else runs, and show what it prints as it comes; whether it succeeded."""
    print(f"\n== {name}", flush=True)
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], cwd=ROOT, check=False)
    print(f"   ({time.monotonic() - started:.1f} s)", flush=True)
    return done.returncode == 0


def run_together(names: list[str]) -> list[str]:
    """Run short benchmarks side by side, as many as there are processors; those that failed, all output in order."""
    use_memory()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = {name: pool.submit(run_shortly, name) for name in names}
        failed = []
        for name, run in runs.items():
            succeeded, text = run.result()
            print(text, flush=True)
            if not succeeded:
                failed.append(name)
    return failed


def run_shortly(name: str) -> tuple[bool, str]:
    """Run the short form of a benchmark; whether it succeeded, and what it printed."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--smoke"],
        cwd=ROOT,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    text = f"\n== {name}\n{done.stdout}   ({time.monotonic() - started:.1f} s)"
    return done.returncode == 0, text


if __name__ == "__main__":
    sys.exit(main())
