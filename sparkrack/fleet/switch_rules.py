"""What must hold inside each switch of a rack file, beyond what its keys may hold one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from sparkrack.fleet.errors import Problem
from sparkrack.fleet.switches import Reader, Switch

_ADMIN = "admin"
"""The user that every switch comes with (MikroTik manual, "Default configurations")."""

_PUBLIC = "public"
"""The SNMP community that every switch comes with (MikroTik manual, "SNMP")."""


def check(switch: Switch) -> Iterator[Problem]:
    """Every broken rule of one switch."""
    for problem in chain(_mtus(switch), _lists(switch), _reader(switch, switch.reader), _snmp(switch)):
        yield Problem(("switches", switch.name, *problem.path), problem.what, problem.right)


def _mtus(switch: Switch) -> Iterator[Problem]:
    if switch.mtu > switch.l2mtu:
        yield Problem(
            ("mtu",),
            f"{switch.mtu} is larger than the l2mtu {switch.l2mtu}",
            "write mtu <= l2mtu <= 9570, like 9000 and 9500",
        )


def _lists(switch: Switch) -> Iterator[Problem]:
    lists = {"management": switch.management, "ntp": switch.ntp, "dns": switch.dns, "purge": switch.purge}
    for key, entries in lists.items():
        for place, entry in enumerate(entries or ()):
            if entry in (entries or ())[:place]:
                yield Problem((key, place), f"{entry} is listed twice", "list every entry once")


def _reader(switch: Switch, reader: Reader | None) -> Iterator[Problem]:
    if reader is None:
        return
    if switch.tls is False:
        yield Problem(
            ("reader",),
            "would send its password over a connection that proves nothing, as tls is false",
            'write tls: {sha256: "<64 hex digits>"}, or remove the reader',
        )
    elif reader.port == switch.port:
        yield Problem(
            ("reader", "port"),
            f"{reader.port} is already the port of the API",
            "write that of www-ssl, most often 443",
        )
    if reader.user in (switch.user, _ADMIN):
        other = "the user that changes the switch" if reader.user == switch.user else "the user that came with it"
        yield Problem(
            ("reader", "user"),
            f"{reader.user} is already {other}",
            "give the reader a name of its own, like sparkrack-reader",
        )


def _snmp(switch: Switch) -> Iterator[Problem]:
    if switch.snmp and switch.snmp.user == _PUBLIC:
        yield Problem(
            ("snmp", "user"),
            f"{_PUBLIC} is the community that came with the switch, open to all",
            "write a name of its own, like monitor",
        )
