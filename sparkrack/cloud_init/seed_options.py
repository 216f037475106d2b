"""The options of `sparkrack seed` as they mean: the management network, and the disk that may be erased. Pure."""

from __future__ import annotations

import re
from ipaddress import IPv4Address

from core.model.cabling import Port
from sparkrack.cloud_init.network_config import Management

_INTERFACE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,14}")
_DISK = re.compile(r"/dev/[A-Za-z0-9/_.:-]{1,200}")
_FABRIC = frozenset(half.interface for number in (0, 1) for half in Port("", number).halves)


class OptionError(Exception):
    """Options that contradict one another, or a value that is invalid. The text is one line."""


def given_management(
    interface: str | None, prefix: int | None, gateway: str | None, dns: tuple[IPv4Address, ...]
) -> Management | None:
    """Return the management network; None when no interface is named. Raises OptionError."""
    if interface is None:
        if prefix is not None or gateway is not None or dns:
            raise OptionError("--prefix, --gateway and --dns are about --interface")
        return None
    if prefix is None:
        raise OptionError("--interface and --prefix belong together")
    if not _INTERFACE.fullmatch(interface) or interface in _FABRIC:
        raise OptionError("--interface is the name of the management interface, like enP7s7")
    return Management(interface, prefix, None if gateway is None else IPv4Address(gateway), dns)


def check_disk(disk: str | None, form: str) -> None:
    """Check the disk that the installer may erase without a question. Raises OptionError."""
    if disk is not None and (form != "autoinstall" or not _DISK.fullmatch(disk)):
        raise OptionError("--erase-disk names a device like /dev/nvme0n1, and is for --format autoinstall")
