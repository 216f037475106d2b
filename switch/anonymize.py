"""Anonymized rows of a switch. Pure.

The same text gets the same replacement everywhere, so that references stay visible; and anonymized rows stay unchanged
when they are anonymized again. Values that are not known to be harmless are hidden.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

from switch.public_fields import FIELDS, FIXED, KIND_OF_FIELD, KIND_OF_ROW, KNOWN, PLAIN, PRIVATE

_MAC = re.compile(r"\b[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}\b")
_V4 = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?!\.?\d)(/\d{1,2})?")
# A colon or a full stop behind an address is of the sentence.
_V6 = re.compile(
    r"(?<![\w:])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){1,6}:(?:[0-9A-Fa-f]{1,4}|(?<=::))(?!\w|:[\w:])(/\d{1,3})?"
)
_NETWORK = re.compile(r"/(\d+)$")
_LEFT_4 = tuple(
    map(
        ip_network,
        ("0.0.0.0/8", "10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "224.0.0.0/3"),
    )
)
_LEFT_6 = tuple(map(ip_network, ("::/127", "ff00::/8")))
_FAR = 0x100
_SHORTEST = 5
_SCRIPTS = ("source", "on-event")
_MODULE = "sfp-vendor-serial"
_PLACE = {"time-zone-name": "UTC", "gmt-offset": "+00:00"}

Row = Mapping[str, str]


class Mask:
    """Replaces what it is given. `macs` and `serials` are all that occur, known beforehand."""

    def __init__(self, macs: Iterable[str], serials: Iterable[str]) -> None:
        self._known: dict[str, dict[str, str]] = defaultdict(dict)
        for mac, new in _renumber_macs({mac.upper() for mac in macs}).items():
            self._known["MAC address"][mac] = new
        self._serials = [serial for serial in dict.fromkeys(serials) if serial]
        for serial in self._serials:
            self._token_of("serial number", serial, "SERIAL-{}")

    @classmethod
    def of(cls, tables: Iterable[Iterable[Row]], texts: Iterable[str] = (), serials: Iterable[str] = ()) -> Mask:
        """Return a mask for some tables; for texts as well, such as output of nodes, and for the serial numbers in
        them.
        """
        rows = [row for table in tables for row in table]
        seen = (value for row in rows for name, value in row.items() if not PRIVATE.fullmatch(name))
        macs = (mac for value in (*seen, *texts) for mac in _MAC.findall(value))
        theirs = (row[name] for row in rows for name in row if "serial" in name and name != _MODULE)
        return cls(macs, (*theirs, *serials))

    @property
    def macs(self) -> dict[str, str]:
        """The MAC addresses that are replaced, and by what."""
        return dict(self._known["MAC address"])

    @property
    def serials(self) -> tuple[str, ...]:
        """The serial numbers that are replaced inside of texts."""
        return tuple(serial for serial in self._serials if len(serial) >= _SHORTEST)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses, some with a prefix length, that were replaced."""
        return tuple(self._known["address outside of private networks"])

    def row(self, path: str, row: Row) -> dict[str, str]:
        """A row of a menu without anything private."""
        return {name: self._mask_value(path, name, value) for name, value in row.items()}

    def words(self, text: str) -> str:
        """Replace the identifying parts of a text, such as an error message, that are recognizable by their form."""
        return self._by_form(text)

    def _mask_value(self, path: str, name: str, value: str) -> str:
        if name == ".id" or (name == "name" and path in FIXED):
            return value
        if name == _MODULE:
            return self._token_of("module serial number", value, "MODULE-{}") if value else value
        if "serial" in name:
            return self._known["serial number"].get(value, value)
        if name in _PLACE:
            return (
                value
                if value in ("manual", _PLACE[name])
                else self._replace_by_constant("time zone", value, _PLACE[name])
            )
        if name not in FIELDS and PRIVATE.fullmatch(name):
            # A script stays valid for the unit: a comment.
            return self._token_of("text", value, "# text-{}" if name in _SCRIPTS else "text-{}") if value else value
        kind = KIND_OF_ROW.get(path, "interface") if name == "name" else KIND_OF_FIELD.get(name)
        if kind:
            return ",".join(self._mask_name(kind, part) for part in value.split(","))
        return self._mask_text(name, value)

    def _mask_name(self, kind: str, text: str) -> str:
        if not text or (kind in KNOWN and KNOWN[kind].fullmatch(text)):
            return text
        return self._token_of(kind, text, f"{kind}-{{}}")

    def _mask_text(self, name: str, value: str) -> str:
        if name in FIELDS:
            return self._by_form(value)
        return ",".join(self._mask_part(part) for part in value.split(","))

    def _mask_part(self, text: str) -> str:
        if _is_form(text) or all(PLAIN.fullmatch(word) or _is_form(word) for word in re.split(r"[/ ]", text)):
            return self._by_form(text)
        return self._token_of("text", text, "text-{}")

    def _by_form(self, text: str) -> str:
        """Replace serial numbers, MAC addresses and public addresses at any place in a text."""
        for serial in self.serials:
            text = text.replace(serial, self._known["serial number"][serial])
        text = _MAC.sub(lambda found: self._known["MAC address"].get(found[0].upper(), "00:00:00:00:00:00"), text)
        text = _V4.sub(lambda found: self._replace_address(found[0], found[1]), text)
        # A MAC address has the form of an IPv6 address; it may stand beside one, as in the output of `ip neighbour`.
        return _V6.sub(
            lambda found: found[0] if _MAC.fullmatch(found[0]) else self._replace_address(found[0], found[1]), text
        )

    def _replace_address(self, text: str, prefix: str | None) -> str:
        try:
            address = ip_address(text.removesuffix(prefix or ""))
        except ValueError:
            return text
        if any(address in network for network in (*_LEFT_4, *_LEFT_6) if network.version == address.version):
            return text
        length = int(prefix[1:]) if prefix else address.max_prefixlen
        known = self._known["address outside of private networks"]
        if text not in known:
            known[text] = f"{_stand_in(address, length, len(known) + 1)}{prefix or ''}"
        return known[text]

    def _token_of(self, kind: str, text: str, form: str) -> str:
        known = self._known[kind]
        if text not in known:
            known[text] = form.format(len(known) + 1)
        return known[text]

    def _replace_by_constant(self, kind: str, text: str, new: str) -> str:
        return self._known[kind].setdefault(text, new)


def owners_words(document: Mapping[str, Any]) -> Iterator[str]:
    """The values of an anonymized fixture where a word of its owner could stand: not those of fields that hold words of
    RouterOS or of a module's maker, and not names that every unit has.
    """
    yield from document["refused"].values()
    for path, rows in (*document["menus"].items(), ("", document["monitor"])):
        for row in rows:
            for name, value in row.items():
                if name in FIELDS or (name == "name" and path in FIXED):
                    continue
                known = KNOWN.get(KIND_OF_ROW.get(path, "interface") if name == "name" else KIND_OF_FIELD.get(name, ""))
                yield from (part for part in value.split(",") if not (known and known.fullmatch(part)))


def _is_form(text: str) -> bool:
    """A whole value that is an address, perhaps with a port or inside of a bridge's id."""
    for form in (_MAC, _V4, _V6):
        found = form.search(text)
        if found and re.fullmatch(r"(0x[0-9A-Fa-f]+\.)?X(:\d+)?", text.replace(found[0], "X", 1)):
            return True
    return False


def _stand_in(address: IPv4Address | IPv6Address, length: int, number: int) -> str:
    """Return an unassigned address: of the ranges for documentation and benchmarks (RFC 5737, 2544, 3849)."""
    if address.version == 6:
        return str(IPv6Address((0x20010DB8 << 96) + (number << max(0, 128 - length))))
    if length == address.max_prefixlen:
        return str(IPv4Address(int(IPv4Address("192.0.2.0")) + number))
    return str(IPv4Address(int(IPv4Address("198.18.0.0")) + (number << (32 - length)) % (1 << 17)))


def _renumber_macs(macs: Iterable[str]) -> dict[str, str]:
    """Replace MAC addresses: the vendor's half stays, which shows the type of the device; the rest is numbered again.
    Neighbours stay neighbours, since it matters whether a unit's addresses are consecutive. Addresses of no vendor
    (private or constructed) lose all of it.
    """
    found: dict[str, str] = {}
    last: dict[str, tuple[int, int]] = {}
    for mac in sorted(macs):
        number = int(mac.replace(":", ""), 16)
        if number in (0, 0xFFFFFFFFFFFF):
            found[mac] = mac
            continue
        local = (number >> 40) & 2
        vendor = "02:00:00" if local else mac[:8]
        before, place = last.get(vendor, (number, 0))
        place += min(number - before, _FAR) if not local else 1 if vendor in last else 0
        last[vendor] = (number, place)
        digits = f"{place:06X}"
        found[mac] = ":".join((vendor, digits[:2], digits[2:4], digits[4:]))
    return found
