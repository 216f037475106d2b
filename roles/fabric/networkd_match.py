"""Which file of systemd-networkd takes an interface, from its section [Match] as systemd.network(5) has it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

UNKNOWN = "-"
"""The driver of an interface for which udev has none."""


@dataclass(frozen=True)
class Device:
    """What may be matched besides the name: the kernel driver ("-": unknown), the MAC address, and the alternative
    names that `ip link` shows."""

    driver: str
    mac: str
    alternative_names: tuple[str, ...] = ()


def first_file(matches: Mapping[str, Iterable[str]], name: str, device: Device) -> str | None:
    """Return the path of the first file that takes an interface, or None.

    Args:
        matches: the lines of [Match] by path. Of two files with one name the first path counts.
        name: the interface.
        device: what else it has.
    """
    files: dict[str, str] = {}
    for path in matches:
        files.setdefault(path.rpartition("/")[2], path)
    return next((path for _, path in sorted(files.items()) if takes(matches[path], name, device)), None)


def takes(lines: Iterable[str], name: str, device: Device) -> bool:
    """Return whether these lines of [Match] take a wired interface. A key that cannot be judged here counts as met; a
    section without a key takes nothing."""
    words: dict[str, list[str]] = {}
    for line in lines:
        key, _, value = (part.strip() for part in line.partition("="))
        words[key] = [*words.get(key, []), *value.split()] if value else []
    has = {
        "Name": [name, *device.alternative_names],
        "Driver": [] if device.driver == UNKNOWN else [device.driver],
        "Type": ["ether"],
        "MACAddress": [device.mac],
        "PermanentMACAddress": [device.mac],
    }
    named = {key: patterns for key, patterns in words.items() if patterns}
    return (
        bool(named)
        and not named.keys() & _OTHER_DEVICES
        and all(
            not has.get(key) or any(_is_listed(patterns, value) for value in has[key])
            for key, patterns in named.items()
        )
    )


def _is_listed(words: list[str], value: str) -> bool:
    """Return whether one of the patterns matches a value; a `!` before the first one inverts the list."""
    inverted = words[0].startswith("!")
    patterns = [words[0].lstrip("!"), *words[1:]]
    return any(fnmatchcase(value.lower(), pattern.lower()) for pattern in patterns) != inverted


_OTHER_DEVICES = {"Kind", "WLANInterfaceType", "SSID", "BSSID"}
"""Keys that a wired interface of a card never meets."""
