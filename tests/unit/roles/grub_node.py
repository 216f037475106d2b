"""A node with the real programs of GRUB and kdump-tools: a root folder into which `run` changes, in mounts of its own.

scripts/setup unpacks the packages into .venv/grub. No program or script of them is changed, but for one stand-in:
grub-probe asks for the disk of the root folder, and there is none.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from pyinfra.api.command import StringCommand

from tests.own_mounts import UNSHARE, refused

PACKAGES = Path(__file__).parents[3] / ".venv/grub"
KERNELS = ("6.17.0-1021-nvidia", "6.17.0-1014-nvidia")
UUID = "7283b2b3-af33-4bd9-a896-b70a086ab2d3"
PROBE = f"""#!/bin/sh
case "$*" in
*fs_uuid*) echo {UUID} ;;
*partuuid*) echo 11111111-02 ;;
*target=fs*) echo ext2 ;;
*target=device*) echo /dev/nvme0n1p2 ;;
*) : ;;
esac
"""
UBUNTU = ("ubuntu_recovery", "quiet_boot", "quick_boot", "gfxpayload_dynamic", "vt_handoff")
"""Switches of 10_linux that Ubuntu builds the same source with."""
FACTORY = {
    "10-init-on-alloc.cfg": 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX init_on_alloc=0 iommu.passthrough=0"\n',
    "20-console.cfg": (
        "# The consoles of the board\n"
        'GRUB_CMDLINE_LINUX="${GRUB_CMDLINE_LINUX:+$GRUB_CMDLINE_LINUX }earlycon=uart,mmio32,0x16A00000 console=tty0 '
        'console=ttyS0,921600"\n'
    ),
    "crashdump.cfg": 'GRUB_CMDLINE_LINUX="${GRUB_CMDLINE_LINUX} crashkernel=1G-:0M"\n',
    "nvidia-pci.cfg": (
        'if [ -n "$GRUB_CMDLINE_LINUX_DEFAULT" ]; then\n'
        '    GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT initcall_blacklist=tegra234_cbb_init"\nfi\n'
        'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT pci=pcie_bus_safe dyndbg=\\"file drivers/* +p\\""\n'
    ),
}
"""Fragments in the ways in which packages write them, with what the kernel of a DGX Spark is started with."""
FIRST = "init_on_alloc=0 iommu.passthrough=0 earlycon=uart,mmio32,0x16A00000 console=tty0 console=ttyS0,921600"
MOUNTS = """set -e
root=$1 packages=$2 script=$3
for d in bin sbin lib lib64; do [ ! -d /usr/$d ] || mount --bind /usr/$d "$root/$d"; done
for d in "$packages"/usr/*; do mkdir -p "$root/usr/${d##*/}"; mount --bind "$d" "$root/usr/${d##*/}"; done
mount --bind "$root/grub-probe" "$root/usr/sbin/grub-probe"
mount --rbind /dev "$root/dev"
mount --rbind /proc "$root/proc"
[ ! -e "$root/mounts" ] || . "$root/mounts"
exec chroot "$root" /bin/sh -c "$script"
"""


@cache
def missing() -> str:
    """Why no such node can be made here; empty where it can."""
    if not (PACKAGES / "usr/sbin/grub-mkconfig").exists():
        return "the packages of GRUB are not unpacked: make setup FOR=tests"
    return refused()


needs_grub = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


@dataclass(frozen=True)
class GrubNode:
    """The node in the folder `root`."""

    root: Path

    def write(self, path: str, text: str = "") -> Path:
        """Write a file of the node."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def read(self, path: str) -> str:
        """Read a file of the node."""
        return (self.root / path.lstrip("/")).read_text()

    def run(self, script: str | StringCommand) -> subprocess.CompletedProcess[str]:
        """Run a script, or a command with its standard input, as root of the node."""
        stdin = ""
        if isinstance(script, StringCommand):
            stdin = str(script.connector_arguments.get("_stdin", ""))
            script = script.get_raw_value()
        return subprocess.run(
            [*UNSHARE, "sh", "-c", MOUNTS, "mounts", str(self.root), str(PACKAGES), script],
            input=stdin,
            capture_output=True,
            text=True,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
            timeout=60,
        )

    def entries(self) -> list[str]:
        """The parameters of each entry of the menu, after the kernel and its root."""
        lines = [line.strip() for line in self.read("/boot/grub/grub.cfg").splitlines()]
        found = [line.partition("\t")[2] for line in lines if line.startswith("linux\t")]
        return [" ".join(line.split(" ro ", 1)[1].split()) for line in found]


def made(root: Path, distribution: str = "ubuntu") -> GrubNode:
    """A node as DGX OS installs it, whose menu its own update-grub wrote. `distribution`: ubuntu or debian."""
    node = GrubNode(root)
    for name in ("bin", "sbin", "lib", "lib64", "usr", "dev", "proc", "tmp", "boot/grub", "var/lib"):
        (root / name).mkdir(parents=True, exist_ok=True)
    shutil.copytree(PACKAGES / "etc", root / "etc", symlinks=True)
    node.write("/grub-probe", PROBE).chmod(0o755)
    linux = root / "etc/grub.d/10_linux"
    text = linux.read_text()
    for switch in UBUNTU if distribution == "ubuntu" else ():
        text = text.replace(f'{switch}="0"', f'{switch}="1"')
    linux.write_text(text)
    node.write(
        "/etc/default/grub", 'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet splash"\nGRUB_CMDLINE_LINUX=""\n'
    )
    for kernel in KERNELS:
        node.write(f"/boot/vmlinuz-{kernel}")
        node.write(f"/boot/initrd.img-{kernel}")
    for name, text in FACTORY.items():
        node.write(f"/etc/default/grub.d/{name}", text)
    done = node.run("update-grub")
    assert done.returncode == 0, done.stderr
    return node
