"""Many ways to write an address, and addresses that nobody outside may reach.

Sources: the special-purpose registries of IANA for IPv4 and IPv6; the forms that the C library's ``inet_aton``,
the URL standard of the WHATWG (host parsing) and Unicode's compatibility forms of digits and dots accept.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from dataclasses import dataclass

INTERNAL = (
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.254",
    "127.0.0.1", "127.0.0.53", "127.255.255.254", "169.254.0.1", "169.254.169.254", "169.254.170.2",
    "172.16.0.1", "172.31.255.254", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.0.1", "192.168.255.254",
    "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
)  # fmt: skip
"""One address or more of every IPv4 range that is not public."""

INTERNAL_6 = (
    "::", "::1", "::2", "64:ff9b:1::1", "100::1", "100:0:0:1::1", "2001::1", "2001:2::1", "2001:10::1", "2001:db8::1",
    "2002:a00:1::1", "3fff::1", "5f00::1", "fc00::1", "fd00::1", "fd00:ec2::254", "fdff:ffff::1", "fe80::1",
    "febf::1", "fec0::1", "ff02::1", "ff0e::1",
)  # fmt: skip
"""The same for IPv6."""

PUBLIC = (
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "126.255.255.255",
    "128.0.0.1",
    "172.32.0.1",
    "223.255.255.1",
)
PUBLIC_6 = ("2606:4700:4700::1111", "2a00:1450:4001::1")


def _parts(address: str) -> list[int]:
    return [int(part) for part in address.split(".")]


def _number(address: str) -> int:
    return int(ipaddress.IPv4Address(address))


def _three(address: str) -> str:
    a, b, c, d = _parts(address)
    return f"{a}.{b}.{c << 8 | d}"


def _two(address: str) -> str:
    a, b, c, d = _parts(address)
    return f"{a}.{b << 16 | c << 8 | d}"


def _mixed(address: str) -> str:
    a, b, c, d = _parts(address)
    return f"0x{a:x}.{b}.0{c:o}.0x{d:02X}"


def _translated(table: str) -> Callable[[str], str]:
    return lambda address: address.translate(dict(zip(map(ord, "0123456789"), table, strict=True)))


def _hex_groups(address: str) -> str:
    number = _number(address)
    return f"{number >> 16:x}:{number & 0xFFFF:x}"


SPELLINGS_4: dict[str, Callable[[str], str]] = {
    "dotted": lambda address: address,
    "dot at the end": lambda address: f"{address}.",
    "one number": lambda address: str(_number(address)),
    "hexadecimal": lambda address: hex(_number(address)),
    "capital hexadecimal": lambda address: f"0X{_number(address):08X}",
    "long hexadecimal": lambda address: f"0x{_number(address):016x}",
    "octal": lambda address: f"0{_number(address):o}",
    "hexadecimal parts": lambda address: ".".join(map(hex, _parts(address))),
    "octal parts": lambda address: ".".join(f"0{part:o}" for part in _parts(address)),
    "padded octal parts": lambda address: ".".join(f"{part:08o}" for part in _parts(address)),
    "padded decimal parts": lambda address: ".".join(f"{part:03d}" for part in _parts(address)),
    "three parts": _three,
    "two parts": _two,
    "mixed bases": _mixed,
    "fullwidth digits": _translated("０１２３４５６７８９"),
    "circled digits": _translated("⓪①②③④⑤⑥⑦⑧⑨"),
    "mathematical digits": _translated("𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖𝟗"),
    "superscript digits": _translated("⁰¹²³⁴⁵⁶⁷⁸⁹"),
    "ideographic stops": lambda address: address.replace(".", "。"),
    "fullwidth stops": lambda address: address.replace(".", "．"),
    "halfwidth stops": lambda address: address.replace(".", "｡"),
    "percent-encoded": lambda address: "".join(f"%{ord(char):02x}" for char in address),
    "mapped": lambda address: f"[::ffff:{address}]",
    "mapped in hexadecimal": lambda address: f"[::ffff:{_hex_groups(address)}]",
    "mapped in full": lambda address: f"[0000:0000:0000:0000:0000:ffff:{_hex_groups(address)}]",
    "mapped, capital": lambda address: f"[::FFFF:{address}]",
    "compatible": lambda address: f"[::{address}]",
    "translated (SIIT)": lambda address: f"[::ffff:0:{address}]",
    "NAT64": lambda address: f"[64:ff9b::{address}]",
    "local NAT64": lambda address: f"[64:ff9b:1::{address}]",
    "6to4": lambda address: f"[2002:{_hex_groups(address)}::1]",
    "Teredo": lambda address: f"[2001:0:{_hex_groups(address)}::1]",
    "link-local ISATAP": lambda address: f"[fe80::5efe:{address}]",
    "after a user": lambda address: f"user@{address}",
    "after a public host as user": lambda address: f"1.1.1.1@{address}",
    "after user and password": lambda address: f"1.1.1.1:80@{address}",
    "after two users": lambda address: f"1.1.1.1@8.8.8.8@{address}",
}
"""Ways to write an IPv4 address as the authority of a URL."""

SPELLINGS_6: dict[str, Callable[[str], str]] = {
    "short": lambda address: f"[{address}]",
    "in full": lambda address: f"[{ipaddress.IPv6Address(address).exploded}]",
    "capital": lambda address: f"[{address.upper()}]",
    "dotted tail": lambda address: f"[{_dotted_tail(address)}]",
    "with a zone": lambda address: f"[{address}%25lo]",
    "with a bare zone": lambda address: f"[{address}%lo]",
    "after a user": lambda address: f"1.1.1.1@[{address}]",
}
"""Ways to write an IPv6 address as the authority of a URL."""


def _dotted_tail(address: str) -> str:
    head, _, tail = ipaddress.IPv6Address(address).exploded.rpartition(":")
    head, _, before = head.rpartition(":")
    return f"{head}:{ipaddress.IPv4Address(int(before + tail, 16))}"


NAMES: dict[str, list[str]] = {
    "loopback.example": ["127.0.0.1"],
    "loopback6.example": ["::1"],
    "private.example": ["10.0.0.1"],
    "metadata.example": ["169.254.169.254"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "nat64.example": ["64:ff9b::7f00:1"],
    "unspecified.example": ["0.0.0.0"],
    "public-and-private.example": ["1.1.1.1", "192.168.0.1"],
    "private-and-public.example": ["192.168.0.1", "1.1.1.1"],
    "public4-private6.example": ["1.1.1.1", "fd00::1"],
    "private4-public6.example": ["10.0.0.1", "2606:4700:4700::1111"],
    "127.0.0.1.example": ["127.0.0.1"],
    "0x7f000001.example": ["127.0.0.1"],
    "xn--bcher-kva.example": ["10.0.0.1"],
    "1e100.example": ["127.0.0.1"],
    "public.example": ["1.1.1.1"],
    "public6.example": ["2606:4700:4700::1111"],
}
"""Names of the test network and where they lead."""

REBINDING = "rebinding.example"
"""Leads to `PUBLIC[0]` the first time it is asked for, and to this machine ever after."""

INTERNAL_NAMES = (
    "localhost", "LOCALHOST", "LocalHost", "localhost.", "ｌｏｃａｌｈｏｓｔ", "ip6-localhost",
    "internal-host", "INTERNAL-HOST",
    *(name for name in NAMES if not name.startswith("public") or "-" in name),
    "PRIVATE.example", "private.example.", "private。example", "ｐｒｉｖａｔｅ.example", "bücher.example",
    "BÜCHER.example", "p%72ivate.example", "1.1.1.1@private.example",
)  # fmt: skip

HOSTS_FILE = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n10.1.2.3 internal-host\n"

ODD_URLS = (
    "http://1.1.1.1\\@127.0.0.1/", "http://127.0.0.1\\@1.1.1.1/", "http://1.1.1.1#@127.0.0.1/",
    "http://1.1.1.1?@127.0.0.1/", "http://127.0.0.1#@1.1.1.1/", "http://127.0.0.1?@1.1.1.1/",
    "http://1.1.1.1/@127.0.0.1/", "http://127.0.0.1/@1.1.1.1/", "http://1.1.1.1%2f@127.0.0.1/",
    "http://127.0.0.1%2f@1.1.1.1/", "http://1.1.1.1%00@127.0.0.1/", "http://127.0.0.1%00.1.1.1.1/",
    "http://127.0.0.1%23.1.1.1.1/", "http:127.0.0.1", "http:/127.0.0.1/", "http:///127.0.0.1/", "http:////127.0.0.1/",
    "http:\\\\127.0.0.1\\", "http:/\\127.0.0.1/", "//127.0.0.1/", "\\\\127.0.0.1\\", " http://127.0.0.1/ ",
    "\thttp://127.0.0.1/", "ht\ttp://127.0.0.1/", "http://127.0.\t0.1/", "http://127.0.\n0.1/", "http://127.0.0.1\r\n/",
    "http://127.0.0.1 /", "http:// 127.0.0.1/", "http://127.0.0.1:80:80/", "http://127.0.0.1:080/", "http://127.0.0.1:/",
    "http://:80/", "http://@/", "http://@127.0.0.1/", "http://:@127.0.0.1/", "http://[127.0.0.1]/", "http://[::1/",
    "http://::1/", "http://::1:80/", "http://[[::1]]/", "http://[::1].1.1.1.1/", "http://[v1.127.0.0.1]/",
    "http://127.0.0.1,1.1.1.1/", "http://1.1.1.1,127.0.0.1/", "http://127.0.0.1;1.1.1.1/", "http://1.1.1.1 127.0.0.1/",
    "http://127.0.0.1\u200b/", "http://127\u00ad.0.0.1/", "http://\u202e127.0.0.1/", "http://127.0.0.1\u3002/",
    "HTTP://127.0.0.1/", "hTTpS://127.0.0.1/", "http://0x7f.0x0.0x0.0x1/", "http://00000000177.0.0.1/",
    "http://127.0.0.1./", "http://127.0.0.1../", "http://127..0.0.1/", "http://127.0.0.1.1/", "http://4294967296/",
    "http://0x100007f000001/", "http://127.0.0.0x1/", "http://٠.٠.٠.٠/", "http://१२७.०.०.१/",
    "ftp://127.0.0.1/", "file:///etc/passwd", "file://127.0.0.1/etc/passwd", "gopher://127.0.0.1:80/_GET",
    "dict://127.0.0.1:80/", "ws://127.0.0.1/", "wss://127.0.0.1/", "unix:///var/run/docker.sock",
    "http+unix://%2fvar%2frun%2fdocker.sock/", "jar:http://127.0.0.1!/", "data:text/plain,x", "javascript:fetch()",
    "blob:http://127.0.0.1/", "view-source:http://127.0.0.1/", "ldap://127.0.0.1:80/", "tftp://127.0.0.1/",
)  # fmt: skip
"""Texts whose parts different parsers of URLs take for different things."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """A URL that leads to an internal address, if it leads anywhere."""

    kind: str
    url: str


def internal_urls() -> Iterator[Spelling]:
    """The whole corpus, with both schemes."""
    for scheme in ("http", "https"):
        for kind, spell in SPELLINGS_4.items():
            for address in INTERNAL:
                yield Spelling(kind, f"{scheme}://{spell(address)}/")
        for kind, spell in SPELLINGS_6.items():
            for address in INTERNAL_6:
                yield Spelling(f"IPv6 {kind}", f"{scheme}://{spell(address)}/")
        for name in INTERNAL_NAMES:
            yield Spelling("name", f"{scheme}://{name}/")
    for url in ODD_URLS:
        yield Spelling("odd", url)
