"""Black box: a node that dies without a message leaves evidence.

The hardware's watchdog resets a node on which systemd no longer runs; where its driver can, it has the kernel panic
first. The kernel panics on an oops, a soft lockup and repeated RCU stalls, writes its last messages to pstore, and
reboots; systemd archives these records at the next boot, and they are never deleted by age. The journal is persistent
and synchronized every second, where the default loses the last lines before a power cut. A cap on the clock of the GPU,
for nodes that lose power at a load step, is set where rack.yaml declares one. So is the flight recorder: samples of
memory, GPU and links in a ring on the disk, the last of them from the last half second. The journal, the samples and
the kernel's messages of each node go to another one where rack.yaml declares that. Each boot collects evidence about
the end of the one before, for `sparkrack autopsy`. A crash kernel, which writes the kernel's log after a panic, is kept
where rack.yaml declares one. Without the section `blackbox` the role does nothing. It never reboots a node and never
causes a panic. It cannot record a power cut itself, and no check of it proves that a record survives a real panic.
"""

from __future__ import annotations

from core.model.role import Role
from roles.blackbox.options import BlackboxOptions, check_options, reserved_gib

ROLE = Role(
    __name__,
    title="Blackbox",
    promise=(
        "a hardware watchdog that systemd feeds, with a panic before its reset; a panic and a reboot instead of a hang,"
        " with its record in pstore; a crash kernel where declared; a persistent journal, synchronized every second; in"
        " each boot the evidence of how the one before ended; a cap on the GPU's clock and a flight recorder where"
        " declared; the journal, the samples and the kernel's messages sent to another node where declared"
    ),
    proof=(
        "`systemctl`, the watchdog in `/sys`, `sysctl`, `findmnt`, `journalctl`, the clock by `nvidia-smi`, the"
        " evidence of this boot, the newest sample, a line that arrives at another node"
    ),
    options=BlackboxOptions,
    opt_in=True,
    risky=True,
    rules=check_options,
    reserved_gib=reserved_gib,
)
