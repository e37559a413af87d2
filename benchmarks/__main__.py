"""Run all benchmarks, or those named: ``python -m benchmarks [--smoke] [NAME…]``.

``--smoke`` makes each one short: it shows that they run and print their ratios, not what the ratios are.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="short runs")
    parser.add_argument("names", nargs="*", help="benchmarks to run (default: all)")
    options = parser.parse_args()

    here = Path(__file__).parent
    known = sorted(path.stem for path in here.glob("*.py") if not path.stem.startswith("_"))
    if unknown := set(options.names) - set(known):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))} (there are: {', '.join(known)})")

    failed = []
    for name in options.names or known:
        print(f"\n== {name}", flush=True)
        started = time.monotonic()
        command = [sys.executable, "-m", f"benchmarks.{name}", *(["--smoke"] if options.smoke else [])]
        if subprocess.run(command, cwd=here.parent, check=False).returncode:
            failed.append(name)
        print(f"   ({time.monotonic() - started:.1f} s)", flush=True)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
