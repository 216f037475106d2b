"""Desired evidence of a node that dies: kernel settings, pstore and journal. Pure: from rack.yaml to files.

The watchdog and the clock of the GPU have modules of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from core.model import Rack
from core.model.fields import mebibytes, seconds
from core.util.event import Event, EventKind
from core.util.managed_file import ManagedFile, header
from roles.blackbox.options import BlackboxOptions

PANIC = "/etc/sysctl.d/zz-sparkrack-blackbox.conf"
"""Drop-ins apply in the order of their names, regardless of their folder: the last one wins."""
MODULES = "/etc/modules-load.d/zz-sparkrack-blackbox.conf"
MODPROBE = "/etc/modprobe.d/zz-sparkrack-blackbox.conf"
PSTORE = "/etc/systemd/pstore.conf.d/zz-sparkrack.conf"
ARCHIVE = "/var/lib/systemd/pstore"
TMPFILES = "/etc/tmpfiles.d/zz-sparkrack-blackbox.conf"
JOURNAL = "/etc/systemd/journald.conf.d/zz-sparkrack.conf"

PSTORE_UNIT = "systemd-pstore.service"
JOURNAL_UNIT = "systemd-journald.service"
FLUSH_UNIT = "systemd-journal-flush.service"
"""Moves the journal from /run to the disk at boot: where it is masked, the journal is not persistent (measured)."""

MODULE = "efi_pstore"

SYMBOLS = {
    "kernel.softlockup_panic": "CONFIG_SOFTLOCKUP_DETECTOR",
    "kernel.hung_task_panic": "CONFIG_DETECT_HUNG_TASK",
    "kernel.panic_on_rcu_stall": "CONFIG_RCU_STALL_COMMON",
    "kernel.max_rcu_stall_to_panic": "CONFIG_RCU_STALL_COMMON",
}
"""Options of the kernel without which it lacks a setting."""
_OPTIONS = {
    "kernel.softlockup_panic": "softlockup",
    "kernel.hung_task_panic": "hung_task",
    "kernel.panic_on_rcu_stall": "rcu_stalls",
    "kernel.max_rcu_stall_to_panic": "rcu_stalls",
}


def parse_live(answer: str) -> dict[tuple[str, str], str]:
    """Parse lines `subject name value`. Raises ValueError for any other line, and for two of one name."""
    found: dict[tuple[str, str], str] = {}
    for line in answer.splitlines():
        match = re.fullmatch(r"([a-z][a-z0-9_]*) ([a-z][a-z0-9_/]*) (.*)", line)
        if not match or (match[1], match[2]) in found:
            raise ValueError(f"blackbox state: unexpected probe output {line[:80]!r}")
        found[match[1], match[2]] = match[3].strip()
    return found


# claim: blackbox.panic-record
def sysctls(rack: Rack) -> dict[str, int]:
    """Return the kernel settings by name. A shortage of memory is never a panic: the guard of the role memory acts."""
    panic = rack.options(BlackboxOptions).panic
    wanted = {
        "kernel.panic": seconds(panic.after),
        "kernel.panic_on_oops": int(panic.oops),
        "kernel.softlockup_panic": int(panic.softlockup),
        "kernel.panic_on_rcu_stall": int(panic.rcu_stalls is not False),
        "kernel.hung_task_panic": int(panic.hung_task),
        "vm.panic_on_oom": 0,
    }
    if panic.rcu_stalls is not False:
        wanted["kernel.max_rcu_stall_to_panic"] = panic.rcu_stalls  # the kernel takes no 0
    return wanted


def panic_file(rack: Rack) -> ManagedFile:
    """Return the drop-in that sets them at boot; a leading `-` lets the kernel lack one."""
    return settings_file(PANIC, rack, *(f"-{key} = {value}" for key, value in sysctls(rack).items()))


def live_sysctls(live: Mapping[tuple[str, str], str], rack: Rack) -> dict[str, int | None]:
    """Return the kernel's settings as they are; None for one that it lacks. Raises ValueError for an unknown one."""
    found: dict[str, int | None] = {}
    for key in sysctls(rack):
        value = live.get(("sysctl", key.replace(".", "/")), "no answer")
        if value != "absent" and not re.fullmatch(r"-?[0-9]{1,10}", value):
            raise ValueError(f"{key}: is not a number: {value[:40]!r}")
        found[key] = None if value == "absent" else int(value)
    return found


def wrong_sysctls(rack: Rack, now: Mapping[str, int | None]) -> dict[str, int]:
    """Return the settings to write. One that the kernel lacks cannot be written."""
    return {key: value for key, value in sysctls(rack).items() if now[key] not in (None, value)}


def missing_sysctls(rack: Rack, now: Mapping[str, int | None]) -> tuple[Event, ...]:
    """Return what is declared and what this kernel cannot do."""
    events = []
    for key, value in sysctls(rack).items():
        if now[key] is None and value:
            option = _OPTIONS.get(key)
            symbol = f" ({SYMBOLS[key]} in /boot/config-*)" if key in SYMBOLS else ""
            fix = f"; use a kernel with it, or set blackbox.panic.{option}: false in rack.yaml" if option else ""
            events.append(Event(EventKind.BROKEN, subject=key, detail=f"this kernel does not have it{symbol}{fix}"))
    return tuple(events)


def pstore_files(rack: Rack) -> list[ManagedFile]:
    """Return the files that load the backend, have its records archived and keep the archive.

    Ubuntu's kernel has the backend as a module, off by default; systemd-tmpfiles deletes records after 14 days.
    """
    return [
        settings_file(MODULES, rack, MODULE),
        settings_file(MODPROBE, rack, f"options {MODULE} pstore_disable=N"),
        settings_file(PSTORE, rack, "[PStore]", *(f"{key}={value}" for key, value in PSTORE_SETTINGS.items())),
        settings_file(TMPFILES, rack, f"x {ARCHIVE}/*"),
    ]


PSTORE_SETTINGS = {"Storage": "external", "Unlink": "yes"}


@dataclass(frozen=True)
class PstoreBackend:
    """What stores the kernel's last messages. `name`: of the registered backend, empty for none. `module`: the file of
    the module efi_pstore, `(builtin)`, or empty for a kernel without it. `disabled`: its parameter pstore_disable, Y or
    N, or empty while the kernel does not have the module.
    """

    name: str
    module: str
    disabled: str

    @property
    def loadable(self) -> bool:
        """Whether loading the module registers a backend."""
        return not self.name and bool(self.module) and not self.disabled

    @property
    def blockers(self) -> tuple[str, ...]:
        """Why this node cannot store records, which no run changes."""
        off = "or set blackbox.pstore: false in rack.yaml"
        if self.name:
            return ()
        if not self.module:
            why = "this kernel has no module efi_pstore (CONFIG_EFI_VARS_PSTORE in /boot/config-*); use one with it"
        elif self.disabled == "N":
            why = "efi_pstore is loaded and has registered none; look for efi_pstore in `dmesg`"
        elif self.module == "(builtin)":
            why = (
                "efi_pstore is built into this kernel and disabled; add efi_pstore.pstore_disable=0 to "
                "GRUB_CMDLINE_LINUX, run update-grub and reboot"
            )
        else:
            return ()
        return (f"pstore has no backend: {why}, {off}",)

    @property
    def reboot(self) -> tuple[str, ...]:
        """Why only a reboot brings the backend: a module that is loaded keeps its parameter."""
        if self.name or self.disabled != "Y":
            return ()
        return ("efi_pstore was loaded with pstore_disable=Y, so pstore has no backend until the next boot",)


def pstore_backend(live: Mapping[tuple[str, str], str]) -> PstoreBackend:
    """Return the state of pstore. Raises ValueError when it is unknown."""
    backend, disabled, module = (
        live.get(key, "") for key in (("pstore", "backend"), ("efi_pstore", "disabled"), ("efi_pstore", "module"))
    )
    if backend != "(null)" and not re.fullmatch(r"[a-z0-9_-]{1,40}", backend):
        raise ValueError(f"backend of pstore: unexpected probe output {backend[:80]!r}")
    if disabled not in ("absent", "Y", "N"):
        raise ValueError(f"pstore_disable of efi_pstore: unexpected probe output {disabled[:80]!r}")
    if module not in ("absent", "(builtin)") and not module.startswith("/"):
        raise ValueError(f"module efi_pstore: unexpected probe output {module[:80]!r}; is kmod installed?")
    name, file, parameter = ("" if word in ("absent", "(null)") else word for word in (backend, module, disabled))
    return PstoreBackend(name, file, parameter)


# claim: blackbox.journal-sync
def journal_settings(rack: Rack) -> dict[str, str]:
    """Return the settings of journald by key."""
    journal = rack.options(BlackboxOptions).journal
    return {
        "Storage": "persistent",
        "SyncIntervalSec": f"{seconds(journal.sync)}s",
        "SystemMaxUse": f"{mebibytes(journal.keep)}M",
        "SystemKeepFree": "5G",
    }


def journal_file(rack: Rack) -> ManagedFile:
    """Return the drop-in of journald."""
    return settings_file(
        JOURNAL, rack, "[Journal]", *(f"{key}={value}" for key, value in journal_settings(rack).items())
    )


def yes_or_no(live: Mapping[tuple[str, str], str], subject: str, name: str) -> bool:
    """Return an answer of yes or no. Raises ValueError for any other one."""
    answer = live.get((subject, name), "no answer")
    if answer not in ("yes", "no"):
        raise ValueError(f"blackbox state: {subject} {name}: unexpected probe output {answer[:80]!r}")
    return answer == "yes"


def settings_file(path: str, rack: Rack, *lines: str) -> ManagedFile:
    """Return a file of these lines, below the one that names who writes it."""
    return ManagedFile(path, ("\n".join((header(rack.rack), *lines)) + "\n").encode())
