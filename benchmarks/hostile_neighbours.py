"""What a project notices while another one attacks the server, attack by attack.

A well-behaved project asks for flags, sends events, computes results and waits for its deliveries: alone, and while
one attack runs. The reference is the same project on the same server, just before the attack. A row is marked with
``!`` where one of the times that 99 of 100 requests take is more than three times the time alone (and longer than what
a machine with two processors takes for what the attacker may rightly ask for), or where the server took more memory
than its bound, answered 500, or lost an event. Attackers run at the lowest priority; what the server does for them it
does at its own.

`make soak` gives each attack a minute.

    python -m benchmarks.hostile_neighbours [--seconds 10] [--attack NAME…] [--smoke]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.conftest import free_port
from tests.delivery.mailbox import Mailbox
from tests.faults.abuse.attacks import ATTACKS
from tests.faults.abuse.neighbours import MAX_RESIDENT, Resident, Shop, enemy
from tests.faults.destination import Destination
from tests.waiting import PATIENCE_S

from hoglab.demo.server import ChildServer

SECONDS = 10.0
MOST_ALONE_S = 20.0
"""Longest time for which the project is measured alone, before each attack."""
TIMES_ALONE = 3.0
FLOORS_S = {"flags": 0.25, "capture": 0.5, "results": 3.0, "delivery": 5.0}
"""Times that count as no delay, whatever they are alone: two processors are shared with what attackers may ask for."""
START_S = 1.0
"""Time that an attacker gets to begin."""


class Row(NamedTuple):
    """Seconds that 99 of 100 take, alone and under attack, and what else the attack did."""

    alone: dict[str, float]
    attacked: dict[str, float]
    resident: int
    answers: dict[str, int]

    def faults(self) -> list[str]:
        """Return what fell, in words."""
        slow = [
            f"{name} {self.attacked[name] / self.alone[name]:.1f} x alone"
            for name, floor in FLOORS_S.items()
            if self.attacked[name] > max(TIMES_ALONE * self.alone[name], floor)
        ]
        large = [f"{self.resident >> 20} MiB of memory"] if self.resident > MAX_RESIDENT else []
        wrong = [f"{self.answers[status]} x {status}" for status in ("500", "502") if status in self.answers]
        return [*slow, *large, *wrong, *([] if self.answers else ["nothing was attacked"])]


def measured(name: str, seconds: float, folder: Path) -> Row:
    """Run one attack against a server of its own."""
    mailbox = Mailbox()
    environment = {
        "HOGLAB_EVENT_STORE_MEMORY": "256MB",
        "HOGLAB_FETCH_ALLOW_CIDRS": "127.0.0.1/32",
        "HOGLAB_RESULTS_REFRESH_S": "5",
        "HOGLAB_SMTP_URL": mailbox.url,
    }
    server = ChildServer(data=folder / "data", host="127.0.0.1", port=free_port(), environment=environment)
    try:
        with Destination() as destination:
            server.start()
            shop = Shop(server, destination)
            arguments = (server.url, str(seconds + START_S), *enemy(server, "*", limited=False))
            command = [sys.executable, "-m", "tests.faults.abuse.attacks", name, *arguments]
            shop.work(1)
            alone = shop.work(min(seconds, MOST_ALONE_S))
            command.append(f"{destination.url}hang")
            with (
                Resident(server) as resident,
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attacker,
            ):
                try:
                    time.sleep(START_S)
                    attacked = shop.work(seconds)
                    printed, _ = attacker.communicate(timeout=PATIENCE_S)
                finally:
                    attacker.kill()
            shop.close()
            assert attacker.returncode == 0, f"the attacker of {name} failed"
            return Row(alone, attacked, resident.most, json.loads(printed))
    finally:
        server.close()
        mailbox.close()


def shown(name: str, row: Row) -> str:
    times = "".join(f"{row.alone[each] * 1000:9.0f} {row.attacked[each] * 1000:7.0f}" for each in FLOORS_S)
    answers = " ".join(f"{status}:{number}" for status, number in sorted(row.answers.items()))
    mark = f"! {', '.join(faults)}  " if (faults := row.faults()) else ""
    return f"  {name:19}{times} {row.resident >> 20:6}  {mark}{answers}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each attack")
    parser.add_argument(
        "--attack", action="append", choices=sorted(ATTACKS), help="one of them (default: all)"
    )
    parser.add_argument("--smoke", action="store_true", help="two short attacks")
    options = parser.parse_args()
    names = options.attack or (list(ATTACKS)[:2] if options.smoke else list(ATTACKS))
    seconds = 2.0 if options.smoke else options.seconds
    print(
        f"  milliseconds that 99 of 100 take, alone and under attack; {os.cpu_count()} processors, {seconds:g} s"
    )
    print(f"  {'':19}" + "".join(f"{each:>17}" for each in FLOORS_S) + "    MiB  answers to the attacker")
    fell = False
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            row = measured(name, seconds, Path(folder))
        print(shown(name, row), flush=True)
        fell = fell or bool(row.faults())
    # A short run says that the benchmark runs; a long one says whether the bounds hold.
    if fell and not options.smoke:
        raise SystemExit("bounds were passed, see the rows marked with !")


if __name__ == "__main__":
    main()
