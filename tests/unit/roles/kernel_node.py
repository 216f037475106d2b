"""A node for tests of the kernel's command line: a root folder with GRUB's files and programs that read them."""

from __future__ import annotations

from pathlib import Path

from roles.blackbox import boot_parameters, kdump
from tests.unit.ops.shells import stand_in, write

PACKAGED = (
    'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT crashkernel=2G-4G:320M,64G-128G:2048M,128G-:4096M"\n'
)
"""The fragment of kdump-tools 1.10 for arm64."""
TEMPLATE = """\
# kdump-tools configuration
USE_KDUMP=1
KDUMP_KERNEL=/var/lib/kdump/vmlinuz
KDUMP_COREDIR="/var/crash"
#KDUMP_NUM_DUMPS=
"""
"""The settings that the package brings, shortened."""
UPDATE_GRUB = """\
[ -e {root}/etc/default/grub ] && . {root}/etc/default/grub
for x in {root}/etc/default/grub.d/*.cfg; do [ ! -e "$x" ] || . "$x"; done
printf 'Generating grub configuration file ...\\n' >&2
{{
    printf 'menuentry x {{\\n\\tlinux\\t/boot/vmlinuz-6.17 root=UUID=1 ro %s %s\\n}}\\n' \\
        "$GRUB_CMDLINE_LINUX" "$GRUB_CMDLINE_LINUX_DEFAULT"
    printf 'submenu y {{\\n\\t\\tlinux\\t%s\\n}}\\n' '/boot/vmlinuz-6.17 ro recovery nomodeset'
}} > {root}/boot/grub/grub.cfg
"""
"""What grub-mkconfig does of this: it sources its files in the order of their names (grub-common 2.06)."""


def with_grub(root: Path) -> Path:
    """A node that GRUB starts, with what DGX OS gives its kernel."""
    write(root, "/etc/default/grub", 'GRUB_CMDLINE_LINUX=""\nGRUB_CMDLINE_LINUX_DEFAULT="quiet crashkernel=1G-:0M"\n')
    (root / "etc/default/grub.d").mkdir()
    write(root, boot_parameters.CONFIG, "\tlinux\t/boot/vmlinuz-6.17 root=UUID=1 ro  quiet crashkernel=1G-:0M\n")
    stand_in(root, "update-grub", UPDATE_GRUB.format(root=root))
    return root


def started(root: Path, option: str = "m", more: str = "") -> Path:
    """The running kernel: its options and its command line."""
    stand_in(root, "uname", "echo 6.17.0-1021-nvidia")
    options = "CONFIG_CRASH_DUMP=y\nCONFIG_KEXEC_FILE=y\n"
    options += "" if option == "absent" else f"CONFIG_ARM_SBSA_WATCHDOG={option}\n"
    write(root, "/boot/config-6.17.0-1021-nvidia", f"# CONFIG_X is not set\n{options}")
    write(root, "/proc/cmdline", f"BOOT_IMAGE=/boot/vmlinuz-6.17 root=UUID=1 ro quiet crashkernel=1G-:0M{more}\n")
    write(root, "/sys/kernel/kexec_crash_size", "0\n")
    write(root, "/sys/kernel/kexec_crash_loaded", "0\n")
    return root


def with_packages(root: Path, unit: str = "enabled") -> Path:
    """The packages of a crash kernel are installed."""
    stand_in(root, "dpkg-query", "printf installed")
    stand_in(root, "systemctl", f"echo {unit}")
    write(root, kdump.SETTINGS, TEMPLATE)
    write(root, "/etc/default/grub.d/kdump-tools.cfg", PACKAGED)
    return root
