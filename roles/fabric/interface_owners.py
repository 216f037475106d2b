"""Who configures the interfaces of the fabric beside this rack: files that match them by driver, MAC or pattern, what
systemd-networkd has in force, and profiles of NetworkManager. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from core.hardware.gb10 import INTERFACES
from core.util import resources
from roles.fabric.desired import foreign

PROBE = resources.shell_text("roles.fabric", "templates/owners.sh", interfaces=" ".join(sorted(INTERFACES)))
"""Prints lines that `owners` reads. Of a keyfile only the line with the name of its interface: it may hold secrets."""
UNKNOWN = "-"
NETPLAN_PROFILE = "/run/NetworkManager/system-connections/netplan-"
"""What the files of profiles that netplan renders begin with."""
NETPLAN_UNIT = "/run/systemd/network/10-netplan-{}.network"
"""The file that netplan renders of an entry, by the entry's name; systemd-networkd takes the first that matches."""


@dataclass(frozen=True)
class Device:
    """What an entry of netplan may match besides the name: the kernel driver ("-": unknown), and the MAC address."""

    driver: str
    mac: str


@dataclass(frozen=True)
class Owners:
    """What a node reports. `networkd`: the file in force and the netplan files with its entry, by interface.
    `profiles`: the file of NetworkManager's connection in force, by interface. `keyfiles`: interfaces by the path of a
    profile. `manager`: whether NetworkManager runs.
    """

    devices: Mapping[str, Device] = field(default_factory=dict)
    networkd: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    profiles: Mapping[str, str] = field(default_factory=dict)
    keyfiles: Mapping[str, frozenset[str]] = field(default_factory=dict)
    manager: bool = False


def owners(listing: str) -> Owners:
    """Parse the output of the probe. Raises ValueError for any other line."""
    devices: dict[str, Device] = {}
    networkd: dict[str, tuple[str, tuple[str, ...]]] = {}
    profiles: dict[str, str] = {}
    keyfiles: dict[str, frozenset[str]] = {}
    manager = False
    for line in listing.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "manager":
            manager = True
        elif kind == "device" and len(words := rest.split(" ")) == 3:
            devices[words[0]] = Device(words[1], words[2].lower())
        elif kind == "networkd" and len(words := rest.split(" ")) >= 2:
            networkd[words[0]] = (words[1], tuple(words[2:]))
        elif kind == "profile" and " " in rest:
            name, _, path = rest.partition(" ")
            profiles[name] = path
        elif kind == "keyfile" and (match := re.fullmatch(r"(/.*?):\s*interface-name\s*=\s*(\S*)\s*", rest)):
            keyfiles[match[1]] = keyfiles.get(match[1], frozenset()) | {match[2]}
        else:
            raise ValueError(f"fabric-owners: unexpected probe output {line[:80]!r}")
    return Owners(devices, networkd, profiles, keyfiles, manager)


def matched(content: bytes, devices: Mapping[str, Device]) -> set[str]:
    """Return the interfaces that entries of a netplan file match by driver, MAC address or pattern of the name."""
    try:
        found = YAML(typ="safe", pure=True).load(content.decode())
        entries = found["network"]["ethernets"].values()
    except (YAMLError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        return set()
    matches = [entry["match"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("match"), dict)]
    return {name for name, device in devices.items() for match in matches if match and _matches(match, name, device)}


def _matches(match: Mapping[str, Any], name: str, device: Device) -> bool:
    """Return whether all properties of a `match` are those of an interface, as netplan reads them."""
    drivers = match.get("driver", device.driver)
    globs = drivers if isinstance(drivers, list) else [drivers]
    return (
        fnmatchcase(name, str(match.get("name", name)))
        and (device.driver == UNKNOWN or any(fnmatchcase(device.driver, str(glob)) for glob in globs))
        and str(match.get("macaddress", device.mac)).lower() == device.mac
    )


def files_of_others(
    naming: str, contents: Mapping[str, bytes], devices: Mapping[str, Device], names: Iterable[str]
) -> dict[str, list[str]]:
    """Return the interfaces that each netplan file of others names or matches.

    Args:
        naming: lines of netplan files that name interfaces, as `desired.foreign` reads them.
        contents: the netplan files that could be read whole.
        devices: what else an entry may match.
        names: interfaces that the rack manages.
    """
    managed = list(names)
    found = {path: set(named) for path, named in foreign(naming, managed).items()}
    for path, content in contents.items():
        if touched := matched(content, devices) & set(managed):
            found.setdefault(path, set()).update(touched)
    return {path: sorted(named) for path, named in sorted(found.items())}


def in_the_way(found: Owners, names: Iterable[str], named: Iterable[str], ours: bool) -> Iterator[str]:
    """Yield what else configures these interfaces, with its remedy.

    Args:
        found: what the node reports.
        names: interfaces that the rack manages.
        named: netplan files of others that are reported already.
        ours: whether the rack's own file is on the node: what is in force before is replaced by it.
    """
    managed, reported = list(names), set(named)
    for name in managed:
        path, sources = found.networkd.get(name, ("", ()))
        own = NETPLAN_UNIT.format(name)
        if not path or path == own or reported & set(sources):
            pass
        elif sources:
            yield f"{', '.join(sources)} configures {name}, which this rack manages; remove its entry there"
        elif ours or path.rpartition("/")[2] < own.rpartition("/")[2]:
            yield f"{path} configures {name}, which this rack manages; remove that file, then networkctl reload"
    if not found.manager:
        return
    profiles = {path: set(interfaces) for path, interfaces in found.keyfiles.items()}
    for name, path in found.profiles.items():
        if ours and not path.startswith(NETPLAN_PROFILE):
            profiles.setdefault(path, set()).add(name)
    for path, interfaces in sorted(profiles.items()):
        for name in sorted(interfaces & set(managed)):
            yield (
                f"{path}, a profile of NetworkManager, configures {name}, which this rack manages; nmcli connection "
                "show lists it, nmcli connection delete removes it"
            )
