"""No way to write an internal address leads there, on a network where every address leads somewhere (spec:
hog-runtime 9)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from tests.delivery.guard import spellings
from tests.delivery.guard.network import ENTER

ROOT = Path(__file__).parents[3]

# Written down here once more, from the registries, so that the guard is not its own judge.
NOT_PUBLIC = [
    ip_network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/3", "::/3", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "4000::/2", "8000::/1",
    )
]  # fmt: skip


def is_internal(address: str) -> bool:
    parsed = ip_address(address)
    return any(parsed in network for network in NOT_PUBLIC if network.version == parsed.version)


@pytest.fixture(scope="module", autouse=True)
def namespaces() -> None:
    """What a network of our own takes."""
    if shutil.which("ip") is None or subprocess.run([*ENTER, "true"], check=False).returncode:
        pytest.skip("needs `ip`, and the right to make a network namespace")


def run(trials: list[dict[str, Any]], **environment: str) -> list[dict[str, Any]]:
    """What came of each trial in the test network."""
    done = subprocess.run(
        [*ENTER, sys.executable, "-m", "tests.delivery.guard.network"],
        input=json.dumps(trials),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcomes: list[dict[str, Any]] = json.loads(done.stdout)
    assert len(outcomes) == len(trials)
    return outcomes


def test_no_spelling_reaches_an_internal_address() -> None:
    corpus = list(spellings.internal_urls())
    assert len(corpus) > 2_000
    outcomes = run([{"url": each.url} for each in corpus])
    leaks = {
        each.url: outcome
        for each, outcome in zip(corpus, outcomes, strict=True)
        if any(map(is_internal, outcome["reached"]))
    }
    assert not leaks
    # Refused for what they are, at once and for good: a retry would not help.
    addresses = [
        outcome["outcome"]
        for each, outcome in zip(corpus, outcomes, strict=True)
        if each.kind
        in {"dotted", "one number", "hexadecimal", "octal", "mapped", "NAT64", "6to4", "IPv6 short"}
    ]
    assert Counter(addresses) == {"blocked: Hostname is not allowed": len(addresses)}


def test_public_addresses_are_reached_in_every_spelling_that_denotes_them() -> None:
    """The same network, so what the other tests do not see reached could have been."""
    kinds = [kind for kind in spellings.SPELLINGS_4 if kind not in WRAPPED | UNREAD]
    trials = [
        (address, spellings.SPELLINGS_4[kind](address)) for kind in kinds for address in spellings.PUBLIC
    ]
    trials += [
        (address, spell(address))
        for kind, spell in spellings.SPELLINGS_6.items()
        if "zone" not in kind
        for address in spellings.PUBLIC_6
    ]
    outcomes = run([{"url": f"http://{authority}/"} for _, authority in trials])
    assert len(trials) > 150
    for (address, authority), outcome in zip(trials, outcomes, strict=True):
        assert outcome == {"outcome": "200", "reached": [address]}, authority


WRAPPED = {"compatible", "translated (SIIT)", "NAT64", "local NAT64", "6to4", "Teredo", "link-local ISATAP"}
"""Refused whatever they carry: where such an address comes out is decided by a translator that we do not know."""
UNREAD = {"percent-encoded", "padded decimal parts"}
"""The first is a name to us, which does not exist; in the second, a part with an 8 or 9 is no number."""


def test_what_a_name_leads_to_is_judged_each_time() -> None:
    url = {"url": f"http://{spellings.REBINDING}/"}
    first, *later = run(
        [url, url, url, {"url": "http://public.example/"}, {"url": "http://public6.example/"}]
    )
    assert first == {"outcome": "200", "reached": [spellings.PUBLIC[0]]}
    assert later[:2] == [{"outcome": "blocked: Hostname is not allowed", "reached": []}] * 2
    assert [each["reached"] for each in later[2:]] == [["1.1.1.1"], ["2606:4700:4700::1111"]]


def test_a_redirect_to_another_host_is_not_followed() -> None:
    statuses = ("301", "302", "303", "307", "308")
    outcomes = run([{"url": f"http://1.1.1.1/redirect/{status}"} for status in statuses])
    assert outcomes == [{"outcome": status, "reached": ["1.1.1.1"]} for status in statuses]


def test_what_a_name_leads_to_is_judged_at_each_redirect() -> None:
    known, rebinding = run([{"url": f"http://{host}/again/307"} for host in ("1.1.1.1", spellings.REBINDING)])
    assert known == {"outcome": "200", "reached": ["1.1.1.1", "1.1.1.1"]}
    assert rebinding == {"outcome": "blocked: Hostname is not allowed", "reached": [spellings.PUBLIC[0]]}


def test_settings_of_proxies_do_not_lead_around_the_guard() -> None:
    proxy = "http://10.9.9.9:3128"
    names = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    outcomes = run(
        [{"url": "http://public.example/"}, {"url": "http://private.example/"}, {"url": "https://10.0.0.1/"}],
        **dict.fromkeys(names, proxy),
    )
    assert [each["reached"] for each in outcomes] == [["1.1.1.1"], [], []]


def test_what_the_operator_allows_is_reached_and_metadata_never() -> None:
    ways = {
        "http://10.0.0.1/": ["10.0.0.1"],
        "http://0xa000001/": ["10.0.0.1"],
        "http://private.example/": ["10.0.0.1"],
        "http://[fd00::1]/": ["fd00::1"],
        "http://internal-host/": ["10.1.2.3"],
        "http://192.168.0.1/": [],
        "http://public-and-private.example/": [],
        "http://metadata.example/": [],
        "http://0xa9fea9fe/": [],
        "http://[::ffff:169.254.169.254]/": [],
        "http://[fd00:ec2::254]/": [],
    }
    allowed = {"cidrs": ["10.0.0.0/8", "169.254.0.0/16", "fd00::/8"], "hosts": ["metadata.example"]}
    outcomes = run([{"url": url, **allowed} for url in ways])
    assert {url: each["reached"] for url, each in zip(ways, outcomes, strict=True)} == ways
