"""Probe of verify about a node's identity: one script, by other means than the role's where a node has them. Pure.

Where the kernel shows DMI and PCIe links as files, they are read there; the virtual rack has neither, so its stand-ins
for dmidecode and lspci are used. Its script has its own form of answers on purpose, not that of core.probes.protocol: a
check must not share the reading of what it checks.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from core.model import Node
from core.util import resources
from roles.preflight import dmi
from roles.preflight.desired import ECN, PcieLink
from roles.preflight.fleet_comparison import CMDLINE, STORE, common

TOOLS = {
    "containerd": "containerd",
    "NVIDIA container toolkit": "toolkit",
    "mode of NVIDIA's container runtime": "toolkit-mode",
    "default target": "target",
}
"""Question of each further value that should be equal on all nodes."""
ESRT = "firmware of UEFI devices"
"""By the kernel's EFI System Resource Table, which has the embedded controller and the like; fwupd is not asked."""
SYSCTLS = ("vm.min_free_kbytes", "vm.overcommit_memory", "vm.swappiness")
ALIKE = (
    *("kernel", CMDLINE, "NVIDIA driver", "NIC firmware", "BIOS", "swap", *SYSCTLS, "docker engine"),
    *(*TOOLS, STORE, ESRT, "images"),
)
"""Values that should be equal on all nodes of a rack."""


@dataclass(frozen=True)
class VerifyFacts:
    """The answers of a node, by question; and when it was asked and had answered, by the clock here."""

    reported: dict[str, list[str]]
    asked: float
    answered: float

    def one(self, question: str) -> str:
        """Return the only answer to a question; empty when there is none."""
        return (self.reported.get(question) or [""])[0]

    @property
    def clock(self) -> tuple[float, float]:
        """By how many seconds its clock is ahead of the one here: at least, at most."""
        time = float(self.one("clock"))
        return time - self.answered, time - self.asked

    @property
    def links(self) -> dict[str, PcieLink]:
        """Its PCIe links, "32GT/s" and "x4"; the kernel writes "32.0 GT/s PCIe"."""
        found = {}
        for line in self.reported.get("link", []):
            slot, *words = line.replace(".0 GT/s", "GT/s").replace(" PCIe", "").split()
            if len(words) == 2:
                found[slot] = PcieLink(words[0], words[1])
        return found

    @property
    def room(self) -> dict[str, int]:
        """Return the free bytes, by path."""
        return {place: int(blocks) * int(size) for place, blocks, size in map(str.split, self.reported.get("room", []))}

    def maker(self, node: Node) -> str | None:
        """The vendor: the declared one, else the one that the DMI table names; None where that names none."""
        return node.vendor or dmi.vendor_of(self.one("maker"), self.one("board"))

    def alike(self, node: Node) -> dict[str, str]:
        """Return the values that should be equal on all nodes; a BIOS version includes its vendor."""
        held = {key: self.one(key) or "none" for key in ("kernel", "swap", *SYSCTLS)}
        held |= {"NVIDIA driver": self.one("driver") or "none", "NIC firmware": self.one("firmware") or "none"}
        held |= {"docker engine": self.one("engine") or "none", CMDLINE: common(self.one("cmdline").split())}
        held["BIOS"] = f"{self.maker(node)} {self.one('bios')}"
        held |= {about: self.one(question) or "none" for about, question in TOOLS.items()}
        held[ESRT] = f"{self.maker(node)} {', '.join(sorted(self.reported.get('device', ()))) or 'none'}"
        if self.one("store"):  # unknown where docker does not run
            held[STORE] = self.one("store")
        if "image" in self.reported:  # unknown where docker does not run
            held["images"] = ", ".join(self.reported["image"])
        return held


def script(slots: Iterable[str], interfaces: Iterable[str], images: Iterable[str]) -> str:
    """Return the script for a node: for these PCIe functions, these interfaces and these images."""
    return resources.file_text(
        "roles.preflight",
        "templates/verify-probe.sh",
        ecn=ECN,
        sysctls=shlex.join(SYSCTLS),
        slots=shlex.join(slots),
        interfaces=shlex.join(interfaces),
        images=shlex.join(images),
    )


def read_facts(text: str, asked: float, answered: float) -> VerifyFacts:
    """Parse the answers in the output of the script; a line without a tab continues the answer before it."""
    reported: dict[str, list[str]] = {}
    last = ""
    for line in text.splitlines():
        question, tab, answer = line.partition("\t")
        if tab:
            reported.setdefault(question, []).append(answer)
            last = question
        elif last:
            reported[last][-1] += f" {line}"
    return VerifyFacts(reported, asked, answered)
