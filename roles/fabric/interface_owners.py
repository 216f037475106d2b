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
from roles.fabric import networkd_match
from roles.fabric.desired import KEPT, TRIED, foreign
from roles.fabric.networkd_match import UNKNOWN, Device

PROBE = resources.shell_text("roles.fabric", "templates/owners.sh", interfaces=" ".join(sorted(INTERFACES)))
"""Prints lines that `owners` reads. Of a keyfile only the line with the name of its interface: it may hold secrets."""
NETPLAN_PROFILE = "/run/NetworkManager/system-connections/netplan-"
"""What the files of profiles that netplan renders begin with."""
NETPLAN_UNIT = "/run/systemd/network/10-netplan-{}.network"
"""The file that netplan renders of an entry, by the entry's name; systemd-networkd takes the first that matches."""

_KEYFILE = re.compile(r"(/.*?):\s*(?:interface-name|mac-address)\s*=\s*(\S*)\s*")


@dataclass(frozen=True)
class Owners:
    """What a node reports. `networkd`: the file in force and the netplan files with its entry, by interface.
    `profiles`: the file of NetworkManager's connection in force, by interface. `keyfiles`: interfaces by the path of a
    profile, by name, pattern or MAC address. `matches`: the lines of section [Match] by the path of a file of
    systemd-networkd, those that win first. `dropins`: files that change our entry, with its interface. `manager`:
    whether NetworkManager runs.
    """

    devices: Mapping[str, Device] = field(default_factory=dict)
    networkd: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    profiles: Mapping[str, str] = field(default_factory=dict)
    keyfiles: Mapping[str, frozenset[str]] = field(default_factory=dict)
    matches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dropins: tuple[tuple[str, str], ...] = ()
    manager: bool = False


def owners(listing: str) -> Owners:
    """Parse the output of the probe. Raises ValueError for any other line."""
    devices: dict[str, Device] = {}
    networkd: dict[str, tuple[str, tuple[str, ...]]] = {}
    profiles: dict[str, str] = {}
    keyfiles: dict[str, frozenset[str]] = {}
    matches: dict[str, tuple[str, ...]] = {}
    dropins: list[tuple[str, str]] = []
    manager = False
    for line in listing.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "manager":
            manager = True
        elif kind == "device" and len(words := rest.split(" ")) >= 3:
            devices[words[0]] = Device(words[1], words[2].lower(), tuple(words[3:]))
        elif kind == "networkd" and len(words := rest.split(" ")) >= 2:
            networkd[words[0]] = (words[1], tuple(words[2:]))
        elif kind == "profile" and " " in rest:
            name, _, path = rest.partition(" ")
            profiles[name] = path
        elif kind == "dropin" and " " in rest:
            name, _, path = rest.partition(" ")
            dropins.append((name, path))
        elif kind == "match" and (match := re.fullmatch(r"(/.*?\.network):(.*)", rest)):
            matches[match[1]] = (*matches.get(match[1], ()), *([match[2]] if match[2] else []))
        elif kind == "keyfile" and (match := _KEYFILE.fullmatch(rest)):
            keyfiles[match[1]] = keyfiles.get(match[1], frozenset()) | {match[2]}
        else:
            raise ValueError(f"fabric-owners: unexpected probe output {line[:80]!r}")
    return Owners(devices, networkd, profiles, keyfiles, matches, tuple(dropins), manager)


def matched(content: bytes, devices: Mapping[str, Device]) -> set[str]:
    """Return the interfaces that entries of a netplan file match by driver, MAC address or pattern of the name."""
    try:
        found = YAML(typ="safe", pure=True).load(content.decode())
        entries = found["network"]["ethernets"].values()
    except (YAMLError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        return set()
    matches = [entry["match"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("match"), dict)]
    return {
        name
        for name, device in devices.items()
        for match in matches
        if match and _match_selects_interface(match, name, device)
    }


def _match_selects_interface(match: Mapping[str, Any], name: str, device: Device) -> bool:
    """Return whether all properties of a `match` are those of an interface, as systemd-networkd reads what netplan
    renders of them: the name may be an alternative one."""
    drivers = match.get("driver", device.driver)
    globs = drivers if isinstance(drivers, list) else [drivers]
    return (
        any(fnmatchcase(one, str(match.get("name", name))) for one in (name, *device.alternative_names))
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
    for path, touched in _selected_unread(naming, contents, devices).items():
        if touched & set(managed):
            found.setdefault(path, set()).update(touched & set(managed))
    return {path: sorted(named) for path, named in sorted(found.items())}


def _selected_unread(naming: str, contents: Mapping[str, bytes], devices: Mapping[str, Device]) -> dict[str, set[str]]:
    """Return the interfaces whose driver or MAC address stands in a line of a file that was not read whole."""
    found: dict[str, set[str]] = {}
    for line in naming.splitlines():
        path, _, text = line.partition(":")
        selector = re.search(r"(driver|macaddress)[\"']?\s*:\s*[\"']?([^\s\"'{},]+)", text.partition("#")[0])
        if path in contents or path in (KEPT, TRIED) or selector is None:
            continue
        key, value = selector.groups()
        for name, device in devices.items():
            if fnmatchcase(device.driver, value) if key == "driver" else value.lower() == device.mac:
                found.setdefault(path, set()).add(name)
    return found


def in_the_way(found: Owners, names: Iterable[str], named: Iterable[str], ours: bool) -> Iterator[str]:
    """Yield what else configures these interfaces, with its remedy.

    Args:
        found: what the node reports.
        names: interfaces that the rack manages.
        named: netplan files of others that are reported already.
        ours: whether the rack's own file is on the node: what is in force before is replaced by it.
    """
    managed, reported = list(names), set(named)
    networkd_files = _networkd_files_in_force(found, managed, ours) | set(found.dropins)
    for name in managed:
        _, sources = found.networkd.get(name, ("", ()))
        if sources and not reported & set(sources):
            yield f"{', '.join(sources)} configures {name}, which this rack manages; remove its entry there"
        for path in sorted(path for interface, path in networkd_files if interface == name):
            yield f"{path} configures {name}, which this rack manages; remove that file, then networkctl reload"
    for path, interfaces in sorted(_profiles_in_force(found, managed, ours).items()):
        for name in sorted(interfaces):
            yield (
                f"{path}, a profile of NetworkManager, configures {name}, which this rack manages; nmcli connection "
                "show lists it, nmcli connection delete removes it"
            )


def _networkd_files_in_force(found: Owners, names: Iterable[str], ours: bool) -> set[tuple[str, str]]:
    """Return interfaces with the file of systemd-networkd that wins over our entry: the one in force, or the one that
    the next reload puts in force, which a run's own change does."""
    files = set()
    for name in names:
        own = NETPLAN_UNIT.format(name)
        path, sources = found.networkd.get(name, ("", ()))
        if path and path != own and not sources and (ours or _file_name(path) < _file_name(own)):
            files.add((name, path))
        elif name in found.devices and not sources:
            waiting = networkd_match.first_file(found.matches, name, found.devices[name])
            if waiting and _file_name(waiting) < _file_name(own):
                files.add((name, waiting))
    return files


def _profiles_in_force(found: Owners, names: Iterable[str], ours: bool) -> dict[str, set[str]]:
    """Return which of these interfaces profiles of NetworkManager select or have, by the path of the profile."""
    profiles: dict[str, set[str]] = {}
    for name in names if found.manager else ():
        device = found.devices.get(name)
        for path, selectors in found.keyfiles.items():
            if name in selectors or (
                device and any(_keyfile_selects_interface(text, name, device) for text in selectors)
            ):
                profiles.setdefault(path, set()).add(name)
        path = found.profiles.get(name, NETPLAN_PROFILE)
        if ours and not path.startswith(NETPLAN_PROFILE):
            profiles.setdefault(path, set()).add(name)
    return profiles


def _keyfile_selects_interface(text: str, name: str, device: Device) -> bool:
    """Return whether the value of `interface-name` or `mac-address` of a keyfile is this interface. A list, which only
    the section [match] has, selects what one of its patterns matches, and none of those with `!` and all with `&`."""
    patterns = [pattern for pattern in text.split(";") if pattern]
    alternatives = [pattern.lstrip("|") for pattern in patterns if pattern[0] not in "!&"]
    mandatory = [pattern for pattern in patterns if pattern[0] in "!&"]
    if text.lower() == device.mac:
        return True
    return (
        bool(patterns)
        and (not alternatives or any(fnmatchcase(name, pattern) for pattern in alternatives))
        and all(fnmatchcase(name, pattern.lstrip("&!")) != ("!" in pattern[:2]) for pattern in mandatory)
    )


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]
