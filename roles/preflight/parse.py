"""Parser of the probe's answers. Pure. Raises ValueError with the reason for invalid answers."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from roles.preflight.desired import OWNER, MachineFacts, PcieLink

PACKAGES = {
    "maker": "dmidecode",
    "board": "dmidecode",
    "product": "dmidecode",
    "bios": "dmidecode",
    "links": "pciutils",
    "firmware": "ethtool",
    "devices": "fwupd",
}
"""The package of a tool that may be missing."""
TOOLS = {
    "links": "lspci",
    "firmware": "ethtool",
    "driver": "nvidia-smi",
    "room": "df",
    "engine": "dpkg-query",
    "devices": "fwupdmgr",
}


SYSTEM_FIRMWARE = "System Firmware"
"""What fwupd calls the BIOS (fwupd, plugins/uefi-capsule/fu-uefi-capsule-device.c)."""


@dataclass(frozen=True)
class ProbeAnswer:
    """One answer of a node: exit status and output of the tool, on one line."""

    code: int
    text: str


def probe_answers(listing: str) -> dict[str, list[ProbeAnswer]]:
    """Lines `question exit text` by question, in order."""
    found: dict[str, list[ProbeAnswer]] = {}
    for line in listing.splitlines():
        question, code, text = [*line.split(" ", 2), "", ""][:3]
        if not code.isdigit():
            raise ValueError(f"preflight: unexpected probe output {line[:60]!r}")
        found.setdefault(question, []).append(ProbeAnswer(int(code), text.strip()))
    return found


@dataclass(frozen=True)
class Texts:
    """Raw answers of a node: three files, and the listings of the probe's two commands."""

    os_release: str
    cmdline: str
    machine_id: str
    constant: str
    now: str


def facts(texts: Texts, asked: tuple[float, float]) -> MachineFacts:
    """Parse the facts of a node. `asked`: when it was asked and had answered, by the operator's clock."""
    reported, moment = probe_answers(texts.constant), probe_answers(texts.now)
    name = release(texts.os_release)
    unknown: dict[str, str] = {}

    def one(question: str) -> str:
        """Return the text of the only answer; empty, with the reason recorded, when the tool failed."""
        (answer,) = reported.get(question) or moment.get(question) or [ProbeAnswer(127, "")]
        if answer.code == 0 and answer.text:
            return answer.text
        unknown[question] = why(question, answer)
        return ""

    (listed,) = reported.get("links") or [ProbeAnswer(127, "")]
    if listed.code:
        unknown["links"] = why("links", listed)
    for answer in moment.get("room") or [ProbeAnswer(127, "")]:
        if answer.code:
            unknown["room"] = why("room", answer)
    return MachineFacts(
        system=name.get("ID", "?"),
        release=name.get("VERSION_ID", "?"),
        machine=one("machine"),
        kernel=one("kernel"),
        cmdline=tuple(texts.cmdline.split()),
        maker=one("maker"),
        board=one("board"),
        product=one("product"),
        bios=one("bios"),
        driver=one("driver"),
        firmware=_parse_firmware(one("firmware"), unknown) if "firmware" in reported else "",
        engine=_parse_installed_package(reported, "engine"),
        containerd=_parse_installed_package(reported, "containerd"),
        toolkit=_parse_installed_package(reported, "toolkit"),
        toolkit_mode=_single_text(reported, "mode"),
        target=_single_text(reported, "target"),
        store=_single_text(moment, "store"),
        machine_id=_machine_id(texts.machine_id),
        host_keys=_key_values(reported),
        interfaces=frozenset(answer.text for answer in reported.get("interface", [])),
        ecn=frozenset(answer.text for answer in reported.get("ecn", [])),
        links=links(answer.text for answer in reported.get("pci", [])),
        hotplug="hotplug" in reported,
        room={} if "room" in unknown else room(answer.text for answer in moment["room"]),
        clock=_clock_bounds(moment, asked),
        lockers=tuple(dict.fromkeys(answer.text for answer in moment.get("locked", []))),
        wifi=_parse_interfaces(moment, "wifi"),
        tunnels=_parse_interfaces(moment, "tunnel"),
        desktop="desktop" in moment,
        killers=tuple(answer.text for answer in moment.get("killer", [])),
        unknown=unknown,
        racks=_parse_owner_names(reported, OWNER),
        logins=_parse_owner_names(reported, "login "),
        devices=_device_firmware(one("devices"), unknown),
    )


def why(question: str, answer: ProbeAnswer) -> str:
    """Return why a tool did not answer."""
    tool = TOOLS.get(question, "dmidecode" if question in PACKAGES else "uname")
    if answer.code == 127:
        package = PACKAGES.get(question)
        return f"{tool} is not installed" + (f" (package {package})" if package not in (None, tool) else "")
    if answer.code == 124:
        return f"{tool} does not answer in time"
    reported = f": {answer.text[:120]}" if answer.text else ""
    return f"{tool} says nothing" if answer.code == 0 else f"{tool} ends with exit {answer.code}{reported}"


def release(text: str) -> dict[str, str]:
    """Return the fields of os-release."""
    fields = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, _, value in fields}


def links(lines: Iterable[str]) -> dict[str, PcieLink]:
    """Parse PCIe links by function, from the lines of `lspci -D -vv` that begin a function or contain `LnkSta:`."""
    found: dict[str, PcieLink] = {}
    slot = None
    for line in lines:
        begins = re.match(r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ", line)
        if begins:
            slot = begins[1]
            continue
        # claim: preflight.lspci-link
        state = re.match(r"LnkSta:\s*Speed ([0-9.]+GT/s|unknown)[^,]*, Width (x\d+)", line)
        if state is None or slot is None:
            raise ValueError(f"PCIe links: unexpected probe output {line[:60]!r}")
        found[slot] = PcieLink(state[1], state[2])
    return found


def room(lines: Iterable[str]) -> dict[str, int]:
    """Free KiB by place, from the lines of `df --output=avail,target` below its header."""
    found = {}
    for line in lines:
        match = re.fullmatch(r"(\d+) +(/.*)", line)
        if match is None:
            raise ValueError(f"room on disk: unexpected probe output {line[:60]!r}")
        found[match[2]] = int(match[1])
    if "/" not in found:
        raise ValueError("room on disk: the output of df has no line for /")
    return found


def _clock_bounds(moment: Mapping[str, list[ProbeAnswer]], asked: tuple[float, float]) -> tuple[float, float]:
    (answer,) = moment.get("clock") or [ProbeAnswer(127, "")]
    if answer.code or not re.fullmatch(r"\d{1,12}\.\d{1,9}", answer.text):
        raise ValueError(f"clock: unexpected probe output {answer.text[:40]!r}")
    time, (before, after) = float(answer.text), asked
    return time - after, time - before


def _machine_id(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{32}", text.strip()):
        raise ValueError(
            f"/etc/machine-id: unexpected probe output {text[:40]!r}; `systemd-machine-id-setup` makes one"
        )
    return text.strip()


def _key_values(reported: Mapping[str, list[ProbeAnswer]]) -> dict[str, str]:
    keys = {}
    for answer in reported.get("hostkey", []):
        kind, _, key = answer.text.partition(" ")
        if not key:
            raise ValueError(f"host keys: unexpected probe output {answer.text[:40]!r}")
        keys[key.split()[0]] = kind
    return keys


def _parse_owner_names(reported: Mapping[str, list[ProbeAnswer]], before: str) -> tuple[str, ...]:
    """The names that stand after these words in what the files of sparkrack on the node report."""
    texts = [answer.text.partition(before)[2].partition(";")[0].strip() for answer in reported.get("owner", [])]
    return tuple(dict.fromkeys(filter(None, texts)))


def _parse_firmware(text: str, unknown: dict[str, str]) -> str:
    match = re.search(r"firmware-version: (.*?)(?: expansion-rom-version:| bus-info:|$)", text)
    if not match and text:
        unknown["firmware"] = "ethtool -i names no firmware"
    return match[1].strip() if match else ""


def _device_firmware(text: str, unknown: dict[str, str]) -> dict[str, str]:
    """Parse the version of each internal device from the JSON of `fwupdmgr get-devices`: peripherals that are plugged
    in are one node's own, and `System Firmware` is the BIOS, which dmidecode tells."""
    if "devices" in unknown:
        return {}
    try:
        listed = [
            (str(device.get("Name", "")), str(device["Guid"][0]), str(device["Version"]))
            for device in json.loads(text)["Devices"]
            if "Version" in device and device.get("Guid") and "internal" in device.get("Flags", ())
        ]
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        unknown["devices"] = f"fwupdmgr: unexpected output {text[:60]!r}"
        return {}
    names = Counter(name for name, _, _ in listed)
    return {
        name if name and names[name] == 1 else guid: version
        for name, guid, version in sorted(listed)
        if name != SYSTEM_FIRMWARE
    }


def _parse_installed_package(reported: Mapping[str, list[ProbeAnswer]], question: str) -> str:
    """The installed package and its version; dpkg-query fails when it knows one of two names only."""
    for answer in reported.get(question, []):
        match = re.search(r"(?<!\S)installed ([a-z0-9.+-]+) (\S+)", answer.text)
        if match:
            return f"{match[1]} {match[2]}"
    return ""


def _single_text(answers: Mapping[str, list[ProbeAnswer]], question: str) -> str:
    """The only answer to a question; empty where the tool is missing or failed."""
    return next((answer.text for answer in answers.get(question, []) if answer.code == 0), "")


def _parse_interfaces(moment: Mapping[str, list[ProbeAnswer]], kind: str) -> dict[str, tuple[str, ...]]:
    """The addresses of each interface of a kind, by its name."""
    return {name: tuple(own) for name, *own in (answer.text.split() for answer in moment.get(kind, []))}
