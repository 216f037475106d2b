"""The crash kernel (kdump): the memory that is reserved for it, its packages and settings, and its live state. Pure.

With KDUMP_SKIP_VMCORE the crash kernel writes the kernel's log alone: an image of 121 GiB of memory takes minutes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

from core.model import Rack
from core.util.managed_file import ManagedFile
from roles.blackbox import boot_parameters
from roles.blackbox.boot_parameters import Live, answer
from roles.blackbox.options import BlackboxOptions, KdumpOptions

FRAGMENT = f"{boot_parameters.FOLDER}/zz-sparkrack-kdump.cfg"
SETTINGS = "/etc/default/kdump-tools"
"""Of the package. Our keys are set in it, every other line stays."""
PACKAGES = ("kdump-tools", "makedumpfile", "kexec-tools")
_PACKAGES = ("kdump", "makedumpfile", "kexec")
"""The same in the state of the node."""
UNIT = "kdump-tools.service"
PARAMETER = "crashkernel"
KEPT_DUMPS = 3
_LOADED = "/sys/kernel/kexec_crash_loaded"
_VALUE = r"[A-Za-z0-9:,@.\-]{1,200}"
_STATES = "enabled|enabled-runtime|disabled|masked|masked-runtime|static|indirect|alias|generated|linked|not-found|"


class CrashKernel(NamedTuple):
    """What a node has for a crash kernel, and says of it.

    `option`: CONFIG_CRASH_DUMP of the kernel, or unknown. `following`: the parameter `crashkernel` of the next boot,
    `booted`: of the present one; empty for none. `reserved`: bytes; None for a kernel that has no crash kernel.
    `loaded`: whether a crash kernel waits. `installed`: whether all packages are installed. `skips`: whether the
    installed scripts know KDUMP_SKIP_VMCORE; None without them. `unit`: state of the unit's file.
    """

    option: str
    grub: bool
    following: str
    booted: str
    reserved: int | None
    loaded: bool
    installed: bool
    skips: bool | None
    unit: str


def options(rack: Rack) -> KdumpOptions | None:
    """Return the declared crash kernel; None for none."""
    return rack.options(BlackboxOptions).kdump or None


def parameter(wanted: KdumpOptions) -> str:
    """Return the value of `crashkernel` that reserves the declared memory on any node with more than 1 GiB."""
    return f"1G-:{wanted.reserve}"


# claim: blackbox.kdump
def fragment(rack: Rack, wanted: KdumpOptions) -> ManagedFile:
    """Return the fragment of GRUB that reserves the memory. It comes after that of kdump-tools, which reserves more."""
    return boot_parameters.fragment(rack, FRAGMENT, f"{PARAMETER}={parameter(wanted)}")


def state(live: Live) -> CrashKernel:
    """Return the state of a node. Raises ValueError when a part is unknown."""
    reserved = answer(live, "crash", "size", "[0-9]{1,15}|absent")
    skips = answer(live, "package", "skips_vmcore", "yes|no|absent")
    values = [answer(live, subject, PARAMETER, _VALUE) for subject in ("grub", "booted")]
    following, booted = ("" if value == "absent" else value for value in values)
    return CrashKernel(
        option=answer(live, "config", "crash_dump", "y|absent|unknown"),
        grub=boot_parameters.has_grub(live),
        following=following,
        booted=booted,
        reserved=None if reserved == "absent" else int(reserved),
        loaded=answer(live, "crash", "loaded", "0|1|absent") == "1",
        installed=all(answer(live, "package", name, "[a-z-]+") == "installed" for name in _PACKAGES),
        skips=None if skips == "absent" else skips == "yes",
        unit=answer(live, "unit", "kdump", _STATES),
    )


def blockers(wanted: KdumpOptions | None, now: CrashKernel) -> tuple[str, ...]:
    """Why this node can have no crash kernel. Raises ValueError when that is unknown."""
    off = "or set blackbox.kdump: false in rack.yaml"
    if wanted is None:
        return ()
    if now.option == "unknown":
        raise ValueError("CONFIG_CRASH_DUMP: neither /boot/config-* nor /proc/config.gz of the node can be read")
    if now.option == "absent":
        return (f"this kernel cannot start a crash kernel (CONFIG_CRASH_DUMP); use one that can, {off}",)
    if not now.grub:
        return (f"this node has no GRUB (update-grub and {boot_parameters.CONFIG}), which reserves the memory; {off}",)
    if now.skips is False and not wanted.vmcore:
        return (f"{_no_skip()}; install a newer one, set blackbox.kdump.vmcore: true, {off}",)
    return ()


def _no_skip() -> str:
    return (
        "the installed kdump-tools does not know KDUMP_SKIP_VMCORE, so that a panic would write all memory to the disk"
    )


def check_skip() -> str:
    """Return shell text that fails when the installed scripts would write all memory in spite of the settings."""
    return (
        'grep -qs KDUMP_SKIP_VMCORE "$(command -v kdump-config)" /etc/init.d/kdump-tools || '
        f"{{ echo {shlex.quote(_no_skip())} >&2; exit 1; }}"
    )


def settings(wanted: KdumpOptions) -> dict[str, str]:
    """Return the settings of kdump-tools by key."""
    return {
        "USE_KDUMP": "1",
        "KDUMP_SKIP_VMCORE": "0" if wanted.vmcore else "1",
        "KDUMP_NUM_DUMPS": str(KEPT_DUMPS),
    }


def off(before: bytes) -> bytes:
    """Return the settings with which nothing is loaded at boot: without reserved memory the unit would fail."""
    return with_settings(before, {"USE_KDUMP": "0"})


def with_settings(before: bytes, wanted: Mapping[str, str]) -> bytes:
    """Return the file with our keys set, each once and at its place; every other byte stays.

    The file is read by a shell, so that of several lines of a key the last one counts.
    """
    # Not splitlines: for a shell a form feed in a comment ends no line.
    lines = re.findall(r"[^\n]*\n|[^\n]+", before.decode("utf-8", "surrogateescape"))
    for key, value in wanted.items():
        places = [at for at, line in enumerate(lines) if re.match(rf"[ \t]*(?:export[ \t]+)?{key}=", line)]
        if places and lines[places[-1]].rstrip("\n") == f"{key}={value}":
            continue
        if places:
            lines[places[-1]] = f"{key}={value}\n"
            continue
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        lines.append(f"{key}={value}\n")
    return "".join(lines).encode("utf-8", "surrogateescape")


def check_settings(wanted: Mapping[str, str]) -> str:
    """Return shell text that fails unless a shell that reads the new file "$new" has these values."""
    tests = " && ".join(f'[ "${key}" = {value} ]' for key, value in wanted.items())
    wrong = shlex.quote(f"{SETTINGS} sets {', '.join(wanted)} in a way that a changed line does not change")
    return f'( set +u; . "$new"; {tests} ) || {{ echo {wrong} >&2; exit 1; }}'


def load() -> str:
    """Return shell text for `set -eu` that loads the crash kernel, and fails unless it is loaded then."""
    silent = shlex.quote(f"no crash kernel is loaded; journalctl --boot --unit={UNIT}")
    return f"systemctl restart {UNIT} || true; grep -qx 1 {_LOADED} || {{ echo {silent} >&2; exit 1; }}"


def loadable(wanted: KdumpOptions, now: CrashKernel) -> bool:
    """Whether a crash kernel could wait in this boot and none does."""
    return now.booted == parameter(wanted) and bool(now.reserved) and not now.loaded


def reboot(wanted: KdumpOptions | None, now: CrashKernel) -> tuple[str, ...]:
    """What takes effect at the next boot only."""
    if wanted is not None and now.booted != parameter(wanted):
        return (f"{PARAMETER}={parameter(wanted)} takes effect at the next boot",)
    if wanted is None and now.reserved and now.following != now.booted:
        size = f"{now.reserved // 1024**2}M"
        return (f"{size} stay reserved for a crash kernel until the next boot, which has {_shown(now.following)}",)
    return ()


def _shown(value: str) -> str:
    return f"{PARAMETER}={value}" if value else f"no {PARAMETER}"


def broken(wanted: KdumpOptions | None, now: CrashKernel) -> tuple[str, ...]:
    """What a reboot did not bring."""
    if wanted is None or now.booted != parameter(wanted) or now.reserved:
        return ()
    return (f"the kernel was started with {PARAMETER}={now.booted} and has reserved nothing; dmesg | grep crashkernel",)
