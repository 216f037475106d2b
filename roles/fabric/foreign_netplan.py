"""Netplan files of others that may be taken over. Pure: from what such a file holds to why it may not be, if so."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from core.hardware.gb10 import INTERFACES
from core.util import resources
from roles.fabric.desired import KEPT, InterfaceState

EMPTY_NETPLAN = b"network: {version: 2}\n"
"""Content of the file in /run that netplan reads instead of the file of the same name in /etc, until the next boot."""
PLACE = "/etc/netplan/"

_FILES = "/etc/netplan/*.yaml /run/netplan/*.yaml /usr/lib/netplan/*.yaml"
_NAMED = "^[^#]*(en(p1|P2p1|[*?[])|fabric[01])"
_MATCHED = '^[^#]*(driver|macaddress|name)["]?[[:space:]]*:'
"""What an entry matches instead of a name that is written in full."""
_SELECTED = (
    '^[^#{]*(match["]?[[:space:]]*:[[:space:]]*[{][^#{}]*)?(driver|macaddress)["]?[[:space:]]*:[^{}]*[}]?[[:space:]]*$'
)
"""A line that holds a driver or a MAC address of a `match` and nothing else that may be a secret."""
_PRIVATE = '^[^#]*(wifis|modems|tunnels|auth|[a-z-]*password|[a-z-]*keys?|secret|token)["]?[[:space:]]*:'
"""Sections and keys that may hold a secret."""
NAMES_PROBE = (
    f'for f in {_FILES}; do [ ! -e "$f" ] || '
    f"grep -HE -e '{_NAMED}' -e '{_SELECTED}' \"$f\" || [ $? -eq 1 ] || exit 9; done"
)
"""Prints only lines that name an interface of the fabric, or a driver or MAC address that an entry matches: the files
of others may hold secrets (Wi-Fi)."""
CONTENT_PROBE = (
    f'for f in {PLACE}*.yaml; do [ -e "$f" ] || continue; '
    f"[ \"$f\" != {KEPT} ] && grep -qE -e '{_NAMED}' -e '{_MATCHED}' \"$f\" || continue; "
    f"grep -qiE '{_PRIVATE}' \"$f\" || "
    'echo "$f $(base64 -w0 "$f")"; done'
)
"""Prints such files whole, but only those that can hold no secret."""
_RENDERERS = shlex.quote(resources.file_text("roles.fabric", "files/netplan_renderers.py"))
RENDERERS_PROBE = f"if grep -qs renderer {_FILES}; then python3 -I -B -c {_RENDERERS} {_FILES} || exit 9; fi"
"""Command that prints the renderer of all interfaces of each file that sets one, as YAML has it: it may stand inline,
and one of a single interface is not that of all."""


def adoption_blocker(path: str, content: bytes | None, renderers: Mapping[str, str]) -> str | None:
    """Return why a file that defines an interface of ours cannot be taken over, or None when it can.

    `content`: None when it was not read since it may hold a secret. `renderers`: the renderer of all interfaces in each
    netplan file.
    """
    if not path.startswith(PLACE):
        return f"it is not in {PLACE}"
    if content is None:
        return "it is more than a file of Ethernet interfaces"
    try:
        found = YAML(typ="safe", pure=True).load(content.decode())
    except (YAMLError, UnicodeDecodeError):
        return "it is no YAML"
    network = found.get("network") if isinstance(found, dict) and set(found) == {"network"} else None
    if not isinstance(network, dict):
        return "it is not a netplan file"
    more = sorted(set(map(str, network)) - {"version", "renderer", "ethernets"})
    names = sorted(map(str, _foreign_entries(network.get("ethernets"))))
    if more or names:
        return f"it has {', '.join([*more, *names])}, too"
    renderer = network.get("renderer")
    elsewhere = {reported for other, reported in renderers.items() if other != path}
    if renderer is not None and str(renderer) not in elsewhere:
        return f"it is the only file that says renderer: {renderer}, which is for all interfaces"
    return None


def _foreign_entries(section: Any) -> set[Any]:
    """Return the entries that are for other interfaces: neither named like one of the fabric, nor matching its name
    alone, as the mirror of a profile of NetworkManager does (90-NM-UUID.yaml)."""
    if not isinstance(section, dict):
        return set()
    return {name for name, entry in section.items() if name not in INTERFACES and not _matches_one_name(entry)}


def _matches_one_name(entry: Any) -> bool:
    match = entry.get("match") if isinstance(entry, dict) else None
    return isinstance(match, dict) and set(match) == {"name"} and match["name"] in INTERFACES


def named_otherwise(contents: Iterable[bytes]) -> list[str]:
    """Return the entries of these files, which can be taken over, that are not named like their interface."""
    sections = [YAML(typ="safe", pure=True).load(content.decode())["network"].get("ethernets") for content in contents]
    return sorted({str(name) for section in sections if isinstance(section, dict) for name in section} - INTERFACES)


def is_equivalent(contents: Iterable[bytes], wanted: Mapping[str, InterfaceState]) -> bool:
    """Return whether these files, which could be taken over, give each interface of `wanted` its address and MTU, and
    no other interface any: then ours in their place would change nothing.
    """
    found: dict[str, Any] = {}
    for content in contents:
        section = YAML(typ="safe", pure=True).load(content.decode())["network"].get("ethernets") or {}
        if not isinstance(section, dict):
            return False
        if found.keys() & section.keys():
            return False  # netplan merges two files for one interface to a third configuration
        found |= section
    return wanted.keys() <= found.keys() and all(
        _is_same_entry(entry, wanted.get(name, _BARE)) for name, entry in found.items()
    )


def _is_same_entry(entry: Any, want: InterfaceState) -> bool:
    if not isinstance(entry, dict) or not entry.keys() <= {"addresses", "mtu", *_OFF, *_WITHOUT_EFFECT}:
        return False
    if any(not _is_off(entry[key]) for key in _OFF if key in entry):
        return False
    addresses = entry.get("addresses") or []
    return (
        isinstance(addresses, list)
        and all(isinstance(address, str) for address in addresses)
        and frozenset(addresses) == want.addresses
        and entry.get("mtu", 1500) == want.mtu
        and entry.get("renderer", "networkd") == "networkd"
        and entry.get("link-local", []) in ([], ["ipv6"])
        and want.tag is None
    )


def _is_off(value: Any) -> bool:
    """Return whether netplan reads a value as false: it takes YAML 1.1's words, which a parser of YAML 1.2 leaves as
    text."""
    return value is False or (isinstance(value, str) and value.lower() in ("false", "off", "no", "n"))


_BARE = InterfaceState(known=True, up=True, mtu=1500, addresses=frozenset())
_OFF = ("dhcp4", "dhcp6", "wakeonlan")
_WITHOUT_EFFECT = ("optional", "accept-ra", "critical", "ignore-carrier", "link-local", "renderer")
"""Keys that change neither address nor MTU of IPv4. Without link-local addresses an interface has no fe80 address, and
its RDMA device one GID less; the GID of its IPv4 address is asked of the node."""


def contents(listing: str) -> dict[str, bytes]:
    """Parse the content of each file, from lines `path base64`. Raises ValueError for any other line."""
    found = {}
    for line in listing.splitlines():
        path, _, text = line.rpartition(" ")
        try:
            found[path] = base64.b64decode(text, validate=True)
        except ValueError:
            raise ValueError(f"netplan-content: unexpected probe output {line[:40]!r}") from None
    return found


def renderers(listing: str) -> dict[str, str]:
    """Parse the renderer of all interfaces in each file, from `path:renderer: NAME` lines.

    Raises ValueError for any other line.
    """
    found = {}
    for line in listing.splitlines():
        path, _, text = line.partition(":")
        if not path.startswith("/"):
            raise ValueError(f"netplan-renderers: unexpected probe output {line[:80]!r}")
        found[path] = text.partition(":")[2].partition("#")[0].strip().strip("\"'")
    return found
