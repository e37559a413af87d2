"""A network of our own in which every address there is leads to a listener that we watch.

Run inside new network and mount namespaces (`ENTER` makes them). Reads a list of trials as JSON from standard
input, fetches each as a hog function would, and prints for each what came of it and which addresses were reached.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
from tests.delivery.guard.spellings import HOSTS_FILE, NAMES, PUBLIC, REBINDING

from hoglab.delivery.outbound.addresses import AddressGuard
from hoglab.delivery.outbound.fetch import Fetcher, FetchFailure, FetchLimits, FetchRequest

ENTER = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--net", "--mount"]
"""What a command is put behind to run in namespaces of its own."""

PORTS = (80, 443, 3128)
TLS_HANDSHAKE = b"\x16"
REDIRECTS_TO = "169.254.169.254"


def build() -> None:
    """Let all addresses of both families, and the names of the test, lead here."""
    for command in (
        "ip link set lo up",
        "ip route add local 0.0.0.0/0 dev lo",
        "ip -6 route add local ::/0 dev lo",
    ):
        subprocess.run(command.split(), check=True)
    for path, content in (
        ("/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"),
        ("/etc/hosts", HOSTS_FILE),
    ):
        with tempfile.NamedTemporaryFile("w", delete=False) as file:
            file.write(content)
        Path(file.name).chmod(0o644)
        subprocess.run(["mount", "--bind", file.name, path], check=True)


class NameServer(asyncio.DatagramProtocol):
    """Answers for the names of the test; there are no others."""

    def __init__(self) -> None:
        self.rebound = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        query = dns.message.from_wire(data)
        response = dns.message.make_response(query)
        response.flags |= dns.flags.AA | dns.flags.RA
        question = query.question[0]
        addresses = self.addresses(question.name.to_text(omit_final_dot=True).lower(), question.rdtype)
        if addresses is None:
            response.set_rcode(dns.rcode.NXDOMAIN)
        elif addresses:
            response.answer.append(
                dns.rrset.from_text_list(question.name, 0, question.rdclass, question.rdtype, addresses)
            )
        self.transport.sendto(response.to_wire(), addr)

    def addresses(self, name: str, kind: int) -> list[str] | None:
        if name == REBINDING:
            if kind != dns.rdatatype.A:
                return []
            answer = ["127.0.0.1"] if self.rebound else [PUBLIC[0]]
            self.rebound = True
            return answer
        known = NAMES.get(name)
        wants_6 = kind == dns.rdatatype.AAAA
        return known and [address for address in known if (":" in address) == wants_6]


class Listener:
    """Accepts connections to any address, and remembers to which."""

    def __init__(self) -> None:
        self.reached: list[str] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reached.append(writer.get_extra_info("sockname")[0].removeprefix("::ffff:"))
        with suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            first = await reader.readexactly(1)
            if first != TLS_HANDSHAKE:
                first += await reader.readuntil(b"\r\n")
            path = first.split(b" ")[1].decode() if first.count(b" ") > 1 else ""
            target = {"redirect": f"http://{REDIRECTS_TO}/", "again": "/"}.get(path[1:-4])
            status = "200 OK" if target is None else f"{path[-3:]} Moved\r\nLocation: {target}"
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}".encode())
            await writer.drain()
        writer.close()


async def fetch(trial: dict[str, Any]) -> str:
    """One trial, on a client of its own; what came of it in a word."""
    guard = AddressGuard.create(cidrs=trial.get("cidrs", ()), hosts=trial.get("hosts", ()))
    fetcher = Fetcher(guard, FetchLimits(connect_s=2, total_s=4))
    try:
        answer = await fetcher.fetch(FetchRequest(trial["url"], method="GET"))
    finally:
        await fetcher.close()
    if isinstance(answer, FetchFailure):
        return f"{answer.kind}: {answer.detail}"
    return str(answer.status)


async def main() -> None:
    build()
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 53))
    listener = Listener()
    servers = [
        await asyncio.start_server(listener.accept, host, port, family=family)
        for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"))
        for port in PORTS
    ]
    outcomes = []
    for trial in json.load(sys.stdin):
        listener.reached.clear()
        outcome = await fetch(trial)
        await asyncio.sleep(0)  # a connection that was made is accepted by now
        outcomes.append({"outcome": outcome, "reached": list(listener.reached)})
    for server in servers:
        server.close()
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
