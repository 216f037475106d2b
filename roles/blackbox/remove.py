"""Take the black box off a node. What it has recorded stays: it is evidence."""

from __future__ import annotations

from posixpath import basename

from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops.removal import Traces, take_off
from roles.blackbox import (
    ROLE,
    boot_evidence,
    boot_parameters,
    desired,
    journal_stream,
    kdump,
    services,
    watchdog,
)

_PATHS = tuple(path for service in services.SERVICES for path in (*service.paths, *service.leftovers))
_UNITS = tuple(
    basename(path) for path in _PATHS if path.startswith("/etc/systemd/system/sparkrack-") and path.count("/") == 4
)
_PACKAGED = (desired.PSTORE_UNIT, journal_stream.UPLOAD, kdump.UNIT)
_FRAGMENTS = (watchdog.FRAGMENT, kdump.FRAGMENT)

TRACES = Traces(
    ROLE.key,
    own=(
        *_PATHS,
        desired.PANIC,
        watchdog.DROPIN,
        watchdog.MODPROBE,
        *_FRAGMENTS,
        *(f"/etc/systemd/system/*.wants/{unit}" for unit in _UNITS),
    ),
    edited={kdump.SETTINGS: lambda before, _now: before},
    links=tuple(f"/etc/systemd/system/*.wants/{unit}" for unit in _PACKAGED),
    units=_UNITS,
    folders=(journal_stream.FOLDER,),
    sysctls=r"kernel\.(panic|panic_on_oops|softlockup_panic|hung_task_panic|panic_on_rcu_stall|max_rcu_stall_to_panic)"
    r"|vm\.panic_on_oom",
    packages=(*kdump.PACKAGES, journal_stream.PACKAGE),
    refuse=(
        f'if [ -d {boot_evidence.FOLDER} ]; then echo "note records stay: {boot_evidence.FOLDER}, '
        f'$(du -sh {boot_evidence.FOLDER} | cut -f 1)iB; sudo rm -r {boot_evidence.FOLDER} removes them"; fi'
    ),
    before="if command -v nvidia-smi > /dev/null; then nvidia-smi -rgc > /dev/null || true; fi",
    after=(
        "systemctl daemon-reexec; systemctl restart systemd-journald.service; "
        f"systemctl stop {journal_stream.UPLOAD} 2> /dev/null || true; "
        "rm -rf /sys/kernel/config/netconsole/sparkrack 2> /dev/null || true; "
        f"if grep -qsE '{watchdog.PARAMETER}=|{kdump.PARAMETER}=' {boot_parameters.CONFIG} && "
        f"command -v update-grub > /dev/null; then {boot_parameters.run_update()}; fi"
    ),
).register()


@deploy(ROLE.title)
def remove(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """Remove the watchdog's settings, the policy for panics, the recorders and senders, and the crash kernel."""
    take_off(name="Take the black box off", traces=TRACES, _serial=True)
