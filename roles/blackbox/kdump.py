"""The crash kernel (kdump): the memory that is reserved for it, its packages and settings, and its live state. Pure.

The scripts of kdump-tools write an image of the memory in any case, which takes minutes for 121 GiB: the role has the
crash kernel run a program of its own where the log is enough. KDUMP_SKIP_VMCORE, which some owners set, is in the
scripts of neither Debian 12 (1.8.1) nor Debian 13 (1.10.7).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

from core.model import Rack
from core.util import resources
from core.util.managed_file import ManagedFile, validate_shell
from roles.blackbox import boot_parameters
from roles.blackbox.boot_parameters import Live, answer
from roles.blackbox.desired import settings_file
from roles.blackbox.options import BlackboxOptions, KdumpOptions

FRAGMENT = f"{boot_parameters.FOLDER}/zz-sparkrack-kdump.cfg"
SETTINGS = "/etc/default/kdump-tools"
"""Of the package. Our keys are set in it, every other line stays."""
PACKAGES = ("kdump-tools", "makedumpfile", "kexec-tools")
_PACKAGES = ("kdump", "makedumpfile", "kexec")
"""The same in the state of the node."""
UNIT = "kdump-tools.service"
DUMP_DROPIN = "/etc/systemd/system/kdump-tools-dump.service.d/zz-sparkrack.conf"
"""Of the unit with which the crash kernel is started."""
PROGRAM = "/usr/local/lib/sparkrack/keep-crash-log"
PATHS = (PROGRAM, DUMP_DROPIN)
PARAMETER = "crashkernel"
KEPT_DUMPS = 3
_LOADED = "/sys/kernel/kexec_crash_loaded"
_SKIP = re.compile(rb"^[ \t]*(export[ \t]+)?KDUMP_SKIP_VMCORE=", re.MULTILINE)
_VALUE = r"[A-Za-z0-9:,@.\-]{1,200}"
_STATES = "enabled|enabled-runtime|disabled|masked|masked-runtime|static|indirect|alias|generated|linked|not-found|"


class CrashKernel(NamedTuple):
    """What a node has for a crash kernel, and says of it.

    `option`: CONFIG_CRASH_DUMP of the kernel, or unknown. `following`: the parameter `crashkernel` of the next boot,
    `booted`: of the present one; empty for none. `reserved`: bytes; None for a kernel that has no crash kernel.
    `loaded`: whether a crash kernel waits. `installed`: whether all packages are installed. `unit`: state of the unit's
    file. `lockdown`: integrity or confidentiality; empty for none. `signed`: whether the kernel can verify a crash
    kernel (CONFIG_KEXEC_FILE).
    """

    option: str
    grub: boot_parameters.Grub
    following: str
    booted: str
    reserved: int | None
    loaded: bool
    installed: bool
    unit: str
    lockdown: str
    signed: bool


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
    lockdown = answer(live, "kernel", "lockdown", "none|integrity|confidentiality|absent")
    values = [answer(live, subject, PARAMETER, _VALUE) for subject in ("grub", "booted")]
    following, booted = ("" if value == "absent" else value for value in values)
    return CrashKernel(
        option=answer(live, "config", "crash_dump", "y|absent|unknown"),
        grub=boot_parameters.grub(live),
        following=following,
        booted=booted,
        reserved=None if reserved == "absent" else int(reserved),
        loaded=answer(live, "crash", "loaded", "0|1|absent") == "1",
        installed=all(answer(live, "package", name, "[a-z-]+") == "installed" for name in _PACKAGES),
        unit=answer(live, "unit", "kdump", _STATES),
        lockdown="" if lockdown in ("absent", "none") else lockdown,
        signed=answer(live, "config", "kexec_file", "y|absent|unknown") == "y",
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
    if now.grub.missing:
        return (f"only GRUB can reserve the memory of a crash kernel: {now.grub.missing}; {off}",)
    if now.lockdown and not now.signed:
        why = f"this kernel is locked down ({now.lockdown}) and cannot verify a crash kernel (CONFIG_KEXEC_FILE)"
        return (f"{why}; use one that can, {off}",)
    return ()


# claim: blackbox.kdump
def files(rack: Rack, wanted: KdumpOptions) -> list[ManagedFile]:
    """Return the files that have the crash kernel write the log alone; none where it writes the memory as well."""
    if wanted.vmcore:
        return []
    program = resources.file_text("roles.blackbox", "files/keep-crash-log.sh")
    # Type=oneshot has no limit of its own, and a crash kernel that waits keeps the node away.
    lines = (
        "[Unit]",
        "FailureAction=reboot-force",
        "[Service]",
        "ExecStart=",
        f"ExecStart={PROGRAM}",
        "TimeoutStartSec=5min",
    )
    return [
        ManagedFile(PROGRAM, program.encode(), "755", validate_shell()),
        settings_file(DUMP_DROPIN, rack, *lines),
    ]


def settings(wanted: KdumpOptions, before: bytes = b"") -> dict[str, str]:
    """Return the settings of kdump-tools by key. `before`: the present file."""
    found = {"USE_KDUMP": "1", "KDUMP_NUM_DUMPS": str(KEPT_DUMPS)}
    if wanted.vmcore and _SKIP.search(before):
        found["KDUMP_SKIP_VMCORE"] = "0"  # for scripts that know it
    return found


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


def unverified(wanted: KdumpOptions | None, now: CrashKernel) -> tuple[str, ...]:
    """What a kernel that is locked down asks of the crash kernel, while none is loaded."""
    if wanted is None or not now.lockdown or now.loaded:
        return ()
    which = f"this kernel is locked down ({now.lockdown}) and loads only a crash kernel with a signature that it trusts"
    how = f"kdump-tools has it verified with Secure Boot, and without that with KDUMP_KEXEC_ARGS=-s in {SETTINGS}"
    return (f"{which}; {how}",)


def reboot(wanted: KdumpOptions | None, now: CrashKernel) -> tuple[str, ...]:
    """What takes effect at the next boot only."""
    if wanted is not None and now.booted != parameter(wanted) and not _passed_over(wanted, now):
        less = f"programs have {wanted.reserve} less from then on"
        return (f"{PARAMETER}={parameter(wanted)} takes effect at the next boot; {less}",)
    if wanted is None and now.reserved and now.following != now.booted:
        size = f"{now.reserved // 1024**2}M"
        return (
            f"{size} stay reserved for a crash kernel until the next boot, which has {_shown_parameter(now.following)}",
        )
    return ()


def _passed_over(wanted: KdumpOptions, now: CrashKernel) -> bool:
    return now.following == parameter(wanted) != now.booted and now.grub.older


def _shown_parameter(value: str) -> str:
    return f"{PARAMETER}={value}" if value else f"no {PARAMETER}"


def broken(wanted: KdumpOptions | None, now: CrashKernel) -> tuple[str, ...]:
    """What a reboot did not bring."""
    if wanted is None:
        return ()
    if _passed_over(wanted, now):
        return (boot_parameters.passed_over(f"{PARAMETER}={parameter(wanted)}"),)
    if now.booted != parameter(wanted) or now.reserved:
        return ()
    return (f"the kernel was started with {PARAMETER}={now.booted} and has reserved nothing; dmesg | grep crashkernel",)
