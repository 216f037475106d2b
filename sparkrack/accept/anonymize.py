"""Replace what identifies a rack and its owner, the same by the same, in everything that a bundle holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address, ip_address, ip_network

from core.claims.claims import known_claims
from core.model import Rack
from core.util.scrub import scrub
from roles.preflight.dmi import MAKERS
from switch.anonymize import Mask

_COMMON = frozenset(
    (
        *("root", "admin", "ubuntu", "nvidia", "sparkrack", "sparkrack-reader", "ops", "user", "localhost"),
        *("ntp", "time", "mail", "www", "git", "server", "host", "key", "path", "serial"),
        *("crs812", "crs804", "mikrotik", "switch", "bridge", "rack", "node", "spark"),
        *"|".join(MAKERS.values()).split("|"),
    )
)
"""Names that identify no owner, and occur in output of any rack."""
_SHORTEST = 3
"""Characters of a name that is replaced inside of texts."""
_V4 = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?!\.?\d)(?:/\d{1,2})?")
_PRIVATE = tuple(map(ip_network, ("10.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16")))
_WHOLE = frozenset(map(str, _PRIVATE))
_STAND_IN = int(IPv4Address("198.19.0.0"))
"""Of the networks for benchmarks (RFC 2544); `switch.anonymize` takes those from 198.18.0.0 on."""
_INTERFACE = re.compile(
    r"(?:lo|bonding_masters|(?:en|wl|ww|ib|sl)(?:x[0-9a-f]{12}|(?:P\d+)?(?:(?:np|[opsfdnuicvra])\d+)+)"
    r"|(?:eth|wlan|wwan|usb|ib|bond|dummy|wg|tun|tap|vlan|sit|ip6tnl|tunl|gre|gretap|erspan|ifb|team|br|virbr|docker|podman"
    r"|lxcbr|lxdbr|cni|tailscale)\d+(?:-nic)?|veth[0-9a-f]+|br-[0-9a-f]{12})(?:\.\d+)?"
)
"""Names of interfaces that the kernel, systemd or a program gives: no owner has chosen them."""
_DOTTED = re.compile(r"(?<![\w.-])(?:\w(?:[\w-]{0,61}\w)?\.)+[^\W\d_](?:[\w-]{0,61}\w)?(?![\w-])")
"""What has the form of a name in DNS: its last label begins with a letter, unlike that of a version."""
_PUBLIC = re.compile(
    r"(?i)(?:[0-3]\.)?(?:(?:ubuntu|debian)\.)?pool\.ntp\.org|ntp\.ubuntu\.com"
    r"|time\.(?:nist\.gov|(?:google|cloudflare|apple|windows)\.com)"
    r"|(?:[\w-]+\.)?(?:nvidia|ubuntu|mikrotik)\.com|(?:www\.)?kernel\.org"
    # No domain of the top level has one of these names.
    r"|[\w.-]+\.(?:service|timer|socket|conf|ko|zst|xz|gz|json|ya?ml|txt|log|prom)"
)
"""Names with dots that any rack may have."""
_PATH = re.compile(r"(?:(?<![\w./)\]-])|(?<=://))[/~](?=[^\W_])[^\s:;,'\"()]+")
_SYSTEM = frozenset(
    (
        *("bin", "boot", "dev", "etc", "lib", "proc", "run", "sbin", "sys", "tmp", "usr", "var"),
        *("certificate", "console", "export", "file", "interface", "ip", "ipv6", "log", "port", "queue", "rest"),
        *("routing", "snmp", "system", "tool", "user"),
    )
)
"""First parts of paths that any rack has: folders of the system, and menus of RouterOS."""
_PUBLISHED = {
    found[0] for claim in known_claims() for form in (_DOTTED, _PATH) for found in form.finditer(claim.observe)
}
"""What the claims themselves name, which say it in a report as the reason why something was not observed."""
_STANDS = re.compile(r"(?:node|switch|name)\d*|rack|(?:NAME|PATH|KEY|HASH|UUID|REVERSED|SERIAL)-\d+")
_NAMING = tuple(
    map(
        re.compile,
        (
            r"(?m)^\s*\w*NTPServers=(.*)$",
            r"(?m)^\s*ServerName=(\S+)$",
            r"(?m)^\s*Server: \S+ \((\S+)\)$",
            # Of chronyc, with commas: sources, and tracking.
            r"(?m)^[\^=#],[^,\n]*,([^,\n]+),",
            r"(?m)^[0-9A-F]{8},([^,\n]+),",
            r"(?i)\bhostname ([^\s:,]+)",
            r"(?i)\b(?:host|address) ([^\s:,]+) port\b",
            r"\w://(?:([^\s/@:\"']*)(?::[^\s/@]*)?@)?([^\s/:\"']+)",
            r"([^\s@:/<>()\"',;=]+)@([^\s@:/<>()\"',;]+)",
        ),
    )
)
"""Where a name stands in what programs of time and ssh print, in a URL, and in an address of mail."""
_KEYS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("KEY", re.compile(r"AAAA[A-Za-z0-9+/]{20,}={0,3}")),
    ("KEY", re.compile(r"(?<=SHA256:)[A-Za-z0-9+/]{43}")),
    ("HASH", re.compile(r"(?i)(?<![0-9a-f])(?:[0-9a-f]{2}:){31}[0-9a-f]{2}(?![0-9a-f])")),
    ("UUID", re.compile(r"(?i)(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])")),
    (
        "REVERSED",
        re.compile(
            r"(?i)(?<![\w.-])(?:(?:\d{1,3}(?:[/-]\d{1,3})?\.){1,5}in-addr|(?:[0-9a-f]\.){1,32}ip6)\.arpa(?![\w-])"
        ),
    ),
    ("HASH", re.compile(r"(?i)(?<![0-9a-z])(?:[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32})(?![0-9a-z])")),
)
"""Public keys, fingerprints and hashes, machine-ids and UUIDs, and the names of addresses in DNS."""


def names_in(text: str) -> Iterator[str]:
    """Yield what a text names where names of hosts and users stand, but addresses and names that any rack may have."""
    for pattern in _NAMING:
        for found in pattern.finditer(text):
            for name in " ".join(filter(None, found.groups())).split():
                name = name.strip(".[]")
                plain = _INTERFACE.fullmatch(name) or _PUBLIC.fullmatch(name) or re.fullmatch(r"if\d+|[\d.:]*", name)
                if not plain and not _is_address(name):
                    yield name


def _is_address(text: str) -> bool:
    try:
        ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True


class Anonymizer:
    """Replaces names, addresses, MAC addresses, serial numbers and keys in texts of one rack.

    originals: what a finished bundle may not have any more, by what it is; it is complete when every text was replaced.
    """

    def __init__(self, rack: Rack, mask: Mask, names: Iterable[str] = ()) -> None:
        """`mask`: knows all MAC addresses and serial numbers. `names`: host and user names that the rack file lacks."""
        self.mask = mask
        hosts = {name: f"node{number}" for number, name in enumerate(rack.nodes, 1)}
        hosts |= {name: f"switch{number}" for number, name in enumerate(rack.switches, 1)}
        self.hosts: Mapping[str, str] = hosts
        users = [rack.access.user, *(one.user for one in rack.switches.values())]
        users += [one.reader.user for one in rack.switches.values() if one.reader]
        identities = [one.identity for one in rack.switches.values() if one.identity]
        others = [name for name in dict.fromkeys((*users, *identities, *names)) if name not in {*hosts, rack.rack}]
        known = {name: f"name{number}" for number, name in enumerate(others, 1)} | {rack.rack: "rack"} | hosts
        self._names = {name.lower(): new for name, new in known.items() if self._is_identifying(name)}
        longest_first = sorted(map(re.escape, self._names), key=len, reverse=True)
        self._name = re.compile(rf"(?i)(?<![a-z0-9])(?:{'|'.join(longest_first) or '(?!)'})(?![a-z0-9])")
        self._forms = {form: new for mac, new in mask.macs.items() for form, new in _mac_spellings(mac, new)}
        forms = "|".join(map(re.escape, self._forms)) or "(?!)"
        self._form = re.compile(rf"(?ai)(?<![0-9a-f])(?:{forms})(?![0-9a-f])")
        self._networks: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self.originals: dict[str, str] = {name: "a name" for name in self._names if name not in known.values()}
        self.originals |= dict.fromkeys(mask.serials, "a serial number")
        for mac, new in mask.macs.items():
            if mac != new:
                self.originals |= {form.lower(): "a MAC address" for form, _ in ((mac, new), *_mac_spellings(mac, new))}
        addresses = [node.address for node in rack.nodes.values()] + [one.address for one in rack.switches.values()]
        self.originals |= {str(address): "an address" for address in addresses if not address.is_loopback}

    @staticmethod
    def _is_identifying(name: str) -> bool:
        return len(name) >= _SHORTEST and name.lower() not in _COMMON

    def text(self, text: str) -> str:
        """Return a text without secrets and without anything that identifies the rack."""
        lines = (self._anonymize_line(_PATH.sub(self._replace_path, line)) for line in scrub(text).split("\n"))
        renamed = self._name.sub(lambda found: self._rename_host(found[0]), "\n".join(lines))
        return _DOTTED.sub(self._replace_dotted_name, renamed)

    def record(self, text: str) -> str:
        """Return the record of a switch, which the mask has made anonymous, without what the mask leaves: keys, other
        forms of MAC addresses, and private addresses. The mask is not used again: it does not know its own stand-ins.
        """
        return "\n".join(self._other_forms(self._without_keys(line)) for line in text.split("\n"))

    def cut(self, text: str) -> str:
        """Replace a text that may have been cut as `text` does: the part of a word at its end is dropped."""
        return self.text(re.sub(r"\S*\.\.\.$", "...", text))

    def leaks(self, content: str, owned: str) -> list[str]:
        """Return what of the originals is still in a text: "a serial number: XYZ".

        owned: the parts of it where a word of the owner can stand. A name is searched there only: elsewhere the same
        word is one of this program, of RouterOS or of a maker.
        """
        lower, places = content.lower(), owned.lower()
        known = self.originals | {one.partition("/")[0]: "an address" for one in self.mask.addresses}
        found = []
        for original, kind in known.items():
            # The end of a longer number or word is another one.
            pattern = rf"(?<![a-z0-9.]){re.escape(original.lower())}(?!\.?[a-z0-9])"
            if kind == "a name":
                left = bool(re.search(pattern, places))
            elif kind == "an address":
                left = bool(re.search(pattern, lower))
            else:
                left = original.lower() in lower
            if left:
                found.append(f"{kind}: {original}")
        return found

    def _rename_host(self, name: str) -> str:
        # Some letters are the same as others without case, and not in lower case: a long s.
        return self._names.get(name.lower()) or self._names.get(name.casefold(), "name")

    def _replace_dotted_name(self, found: re.Match[str]) -> str:
        """Replace a name with dots; what of it was replaced already stays."""
        head, _, rest = found[0].partition(".")
        labels = found[0].split(".")
        if found[0] in _PUBLISHED or _PUBLIC.fullmatch(found[0]) or all(map(_STANDS.fullmatch, labels)):
            return found[0]
        return (
            f"{head}.{self._other_forms_of('NAME', rest)}"
            if _STANDS.fullmatch(head)
            else self._other_forms_of("NAME", found[0])
        )

    def _replace_path(self, found: re.Match[str]) -> str:
        """Replace a path outside of the system: a home, a mount."""
        first = found[0].split("/")[1] if found[0].startswith("/") else ""
        return found[0] if first in _SYSTEM or found[0] in _PUBLISHED else self._other_forms_of("PATH", found[0])

    def _other_forms_of(self, kind: str, text: str) -> str:
        new = self._keys.setdefault(text.lower(), f"{kind}-{len(self._keys) + 1}")
        self.originals[text.lower()] = "a name"
        return new

    def _anonymize_line(self, line: str) -> str:
        # Keys first: the mask would take a part of one for a MAC address.
        return self._other_forms(self.mask.words(self._without_keys(line)))

    def _without_keys(self, line: str) -> str:
        for kind, pattern in _KEYS:
            line = pattern.sub(lambda found, kind=kind: self._known_key(kind, found[0]), line)  # type: ignore[misc]
        return line

    def _other_forms(self, line: str) -> str:
        line = self._form.sub(lambda found: self._forms[found[0].lower()], line)
        return _V4.sub(lambda found: self._anonymize_address(found[0]), line)

    def _known_key(self, kind: str, text: str) -> str:
        same = text.lower() if kind in ("HASH", "REVERSED") else text
        known = self._keys.setdefault(same, f"{kind}-{len(self._keys) + 1}")
        self.originals[text] = "a key or an identifier"
        return known

    def _anonymize_address(self, text: str) -> str:
        address, slash, length = text.partition("/")
        try:
            private = any(IPv4Address(address) in network for network in _PRIVATE)
        except ValueError:
            return text
        if not private or text in _WHOLE:
            return text
        network, _, host = address.rpartition(".")
        if network not in self._networks:
            if len(self._networks) == 256:
                raise ValueError("the answers name more than 256 networks; leave hosts out with --exclude")
            self._networks[network] = str(IPv4Address(_STAND_IN + (len(self._networks) << 8))).rpartition(".")[0]
        self.originals[address] = "an address"
        return f"{self._networks[network]}.{host}{slash}{length}"


def chosen_interface(name: str) -> bool:
    """Return whether the name of an interface is one that an owner has chosen."""
    return not _INTERFACE.fullmatch(name)


def _mac_spellings(mac: str, new: str) -> Iterable[tuple[str, str]]:
    """Other spellings of a MAC address: with hyphens, with dots, without separators (as in enx...), and inside of the 8
    bytes of a GUID of RDMA or of the serial number of a PCI function.
    """
    return zip(_list_mac_spellings(mac), _list_mac_spellings(new), strict=True)


def _list_mac_spellings(mac: str) -> Iterator[str]:
    digits = mac.replace(":", "").lower()
    yield from (_group_digits(digits, 2, "-"), _group_digits(digits, 4, "."), digits)
    vendor, own = digits[:6], digits[6:]
    # The form of IPv6 and RoCE inverts a bit of the first byte.
    inverted = f"{int(vendor[:2], 16) ^ 2:02x}{vendor[2:]}"
    for whole in (f"{vendor}fffe{own}", f"{inverted}fffe{own}", f"{vendor}ffff{own}", f"{vendor}0300{own}"):
        yield from (whole, _group_digits(whole, 4, ":"), _group_digits(whole, 2, "-"))


def _group_digits(digits: str, size: int, separator: str) -> str:
    return separator.join(digits[at : at + size] for at in range(0, len(digits), size))
