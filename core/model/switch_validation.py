"""Rules for each switch of a rack file that involve more than one key."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from core.hardware.fec import allowed_fec
from core.model.errors import RuleViolation
from core.model.switch_schema import Reader, Switch

_ADMIN = "admin"
"""The user that every switch comes with (MikroTik manual, "Default configurations")."""

_PUBLIC = "public"
"""The SNMP community that every switch comes with (MikroTik manual, "SNMP")."""


def check(switch: Switch) -> Iterator[RuleViolation]:
    """Yield every broken rule of one switch."""
    for problem in chain(
        _mtu_violations(switch),
        _fec_violations(switch),
        _list_violations(switch),
        _reader_violations(switch, switch.reader),
        _snmp_violations(switch),
    ):
        yield RuleViolation(("switches", switch.name, *problem.path), problem.what, problem.right)


def _mtu_violations(switch: Switch) -> Iterator[RuleViolation]:
    largest = switch.hardware.max_l2mtu
    if switch.l2mtu > largest:
        yield RuleViolation(
            ("l2mtu",), f"{switch.l2mtu} is too large for a {switch.hardware.title}", f"write at most {largest}"
        )
    if switch.mtu > switch.l2mtu:
        yield RuleViolation(
            ("mtu",),
            f"{switch.mtu} is larger than the l2mtu {switch.l2mtu}",
            f"write mtu <= l2mtu <= {largest}, like 9000 and 9500",
        )


def _fec_violations(switch: Switch) -> Iterator[RuleViolation]:
    for cage in switch.cages.values():
        split = switch.hardware.cages[cage.name].breakouts[cage.split]
        allowed = allowed_fec(split)
        if cage.fec is not None and cage.fec not in allowed:
            yield RuleViolation(
                ("cages", cage.name, "fec"),
                f"a leg of {cage.split} ({split.gbps}G on {split.lanes_per_leg} "
                f"lane{'s' if split.lanes_per_leg > 1 else ''}) has no link with {cage.fec}",
                f"write {' or '.join(allowed)}, as the other end of its cables has it",
            )


def _list_violations(switch: Switch) -> Iterator[RuleViolation]:
    lists = {"management": switch.management, "ntp": switch.ntp, "dns": switch.dns, "purge": switch.purge}
    for key, entries in lists.items():
        for place, entry in enumerate(entries or ()):
            if entry in (entries or ())[:place]:
                yield RuleViolation((key, place), f"{entry} is listed twice", "list every entry once")


def _reader_violations(switch: Switch, reader: Reader | None) -> Iterator[RuleViolation]:
    if reader is None:
        return
    if switch.tls is False:
        yield RuleViolation(
            ("reader",),
            "would send its password over a connection that proves nothing, as tls is false",
            'write tls: {sha256: "<64 hex digits>"}, or remove the reader',
        )
    elif reader.port == switch.port:
        yield RuleViolation(
            ("reader", "port"),
            f"{reader.port} is already the port of the API",
            "write that of www-ssl, most often 443",
        )
    if reader.user in (switch.user, _ADMIN):
        other = "the user that changes the switch" if reader.user == switch.user else "the user that came with it"
        yield RuleViolation(
            ("reader", "user"),
            f"{reader.user} is already {other}",
            "give the reader a name of its own, like sparkrack-reader",
        )


def _snmp_violations(switch: Switch) -> Iterator[RuleViolation]:
    if switch.snmp and switch.snmp.user == _PUBLIC:
        yield RuleViolation(
            ("snmp", "user"),
            f"{_PUBLIC} is the community that came with the switch, open to all",
            "write a name of its own, like monitor",
        )
