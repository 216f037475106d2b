"""How the proof asks a node what it is: one script, by other means than the role's where a node has them. Pure.

Where the kernel shows DMI and PCIe links as files, they are read there; the virtual rack has none of either, so its
stand-ins for dmidecode and lspci are asked.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from roles.preflight.alike import CMDLINE, common
from roles.preflight.state import ECN, Link
from sparkrack.fleet import Node

SYSCTLS = ("vm.min_free_kbytes", "vm.overcommit_memory", "vm.swappiness")
ALIKE = ("kernel", CMDLINE, "NVIDIA driver", "NIC firmware", "BIOS", "swap", *SYSCTLS, "docker engine", "images")
"""What the nodes of a rack have in common."""

_SCRIPT = r"""export LC_ALL=C
say() { printf '%s\t%s\n' "$1" "$2"; }
dmi() { cat "/sys/class/dmi/id/$1" 2>/dev/null || dmidecode -s "$2" 2>/dev/null | grep -v '^#'; }
say system "$(. /etc/os-release; echo "$ID $VERSION_ID")"
say machine "$(uname -m)"
say kernel "$(uname -r)"
say cmdline "$(cat /proc/cmdline)"
say maker "$(dmi sys_vendor system-manufacturer)"
say board "$(dmi board_vendor baseboard-manufacturer)"
say bios "$(dmi bios_version bios-version)"
say driver "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null)"
say engine "$(dockerd --version 2>/dev/null)"
say machine-id "$(systemd-id128 machine-id)"
for k in /etc/ssh/ssh_host_*_key.pub; do say hostkey "$(ssh-keygen -lf "$k" | cut -d' ' -f2)"; done
for p in / /var/lib/docker /var/lib/containerd; do
[ ! -d "$p" ] || say room "$p $(stat -f -c '%a %S' "$p")"
done
say swap "$(swapon --noheadings --show=NAME,SIZE)"
for k in SYSCTLS; do say "$k" "$(sysctl -n "$k")"; done
width='s/.*LnkSta:[[:space:]]*Speed \([^ ,]*\)[^,]*, Width \(x[0-9]*\).*/\1 \2/p'
for s in SLOTS; do
d=/sys/bus/pci/devices/$s
if [ -e "$d/current_link_width" ]; then say link "$s $(cat "$d/current_link_speed") x$(cat "$d/current_link_width")"
else say link "$s $(lspci -D -vv -s "$s" 2>/dev/null | sed -n "$width")"; fi
done
for i in INTERFACES; do [ ! -e "/sys/class/net/$i/ECN" ] || say ecn "$i"; done
set -- INTERFACES
say firmware "$(ethtool -i "$1" 2>/dev/null | sed -n 's/^firmware-version: //p')"
if systemctl is-active --quiet docker.service; then
for i in IMAGES; do
say image "$i $(docker image inspect --format '{{.Id}}' "$i" 2>/dev/null || echo is not there)"
done
fi
say clock "$(date +%s.%N)"
"""


@dataclass(frozen=True)
class Seen:
    """What a node said, by question; and when it was asked and had answered, by the clock here."""

    said: dict[str, list[str]]
    asked: float
    answered: float

    def one(self, question: str) -> str:
        """The one answer to a question; empty when there is none."""
        return (self.said.get(question) or [""])[0]

    @property
    def clock(self) -> tuple[float, float]:
        """By how many seconds its clock is ahead of the one here: at least, at most."""
        time = float(self.one("clock"))
        return time - self.answered, time - self.asked

    @property
    def links(self) -> dict[str, Link]:
        """Its PCIe links, "32GT/s" and "x4"; the kernel writes "32.0 GT/s PCIe"."""
        found = {}
        for line in self.said.get("link", []):
            slot, *words = line.replace(".0 GT/s", "GT/s").replace(" PCIe", "").split()
            if len(words) == 2:
                found[slot] = Link(words[0], words[1])
        return found

    @property
    def room(self) -> dict[str, int]:
        """Bytes that are free, by place."""
        return {place: int(blocks) * int(size) for place, blocks, size in map(str.split, self.said.get("room", []))}

    def alike(self, node: Node) -> dict[str, str]:
        """What it should have in common with the others; a BIOS is one vendor's."""
        held = {key: self.one(key) or "none" for key in ("kernel", "swap", *SYSCTLS)}
        held |= {"NVIDIA driver": self.one("driver") or "none", "NIC firmware": self.one("firmware") or "none"}
        held |= {"docker engine": self.one("engine") or "none", CMDLINE: common(self.one("cmdline").split())}
        held["BIOS"] = f"{node.vendor} {self.one('bios')}"
        if "image" in self.said:  # where docker does not run, nobody knows
            held["images"] = ", ".join(self.said["image"])
        return held


def script(slots: Iterable[str], interfaces: Iterable[str], images: Iterable[str]) -> str:
    """What is run on a node: for these PCIe functions, these interfaces and these images."""
    words = {"SYSCTLS": SYSCTLS, "SLOTS": slots, "INTERFACES": interfaces, "IMAGES": images}
    text = _SCRIPT.replace("/ECN", f"/{ECN}")
    for mark, values in words.items():
        text = text.replace(mark, shlex.join(values))
    return text


def seen(text: str, asked: float, answered: float) -> Seen:
    """The answers in what the script printed; a line without a tab goes on with the answer before it."""
    said: dict[str, list[str]] = {}
    last = ""
    for line in text.splitlines():
        question, tab, answer = line.partition("\t")
        if tab:
            said.setdefault(question, []).append(answer)
            last = question
        elif last:
            said[last][-1] += f" {line}"
    return Seen(said, asked, answered)
