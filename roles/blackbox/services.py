"""The services of this role: which files they have, and how they read them."""

from __future__ import annotations

from posixpath import dirname

from core.ops.managed_service import ManagedService, Reads
from roles.blackbox import boot_evidence, clock_cap, desired, journal_stream, kdump, netconsole, recorder

PSTORE = ManagedService(
    None,
    (desired.PSTORE_UNIT,),
    (desired.MODULES, desired.MODPROBE, desired.PSTORE, desired.TMPFILES),
    Reads.NOTHING,
    at_boot=True,
)
JOURNAL = ManagedService(
    "blackbox-journal", (desired.JOURNAL_UNIT,), (desired.JOURNAL,), after="journalctl --flush", static=True
)
"""Services keep their connection to the journal: systemd stores it over the restart."""
FLUSH = ManagedService(None, (desired.FLUSH_UNIT,), (), Reads.NOTHING, at_boot=True, static=True)
CLOCK = ManagedService("blackbox-clock", (clock_cap.NAME,), (clock_cap.UNIT,))
EVIDENCE = ManagedService("blackbox-evidence", boot_evidence.NAMES, boot_evidence.PATHS, Reads.NOTHING)
RECORDER = ManagedService(
    "blackbox-recorder",
    recorder.NAMES,
    (recorder.PROGRAM, *recorder.UNITS.values()),
    prepare=f"(umask 022; mkdir -p {dirname(recorder.METRICS)})",
    leftovers=(recorder.METRICS,),
)
UPLOAD = ManagedService("blackbox-upload", (journal_stream.UPLOAD,), journal_stream.SENDER_PATHS, waits=True)
RECEIVE = ManagedService("blackbox-receive", (journal_stream.RECEIVE,), journal_stream.RECEIVER_PATHS)
NETCONSOLE = ManagedService(
    "blackbox-netconsole",
    (netconsole.TIMER,),
    netconsole.SENDER_PATHS,
)
NETCONSOLE_RECEIVE = ManagedService("blackbox-netconsole_receive", (netconsole.RECEIVE,), netconsole.RECEIVER_PATHS)
KDUMP = ManagedService(None, (kdump.UNIT,), kdump.PATHS, Reads.NOTHING, restart=kdump.load(), at_boot=True)
"""The crash kernel that it loads reads the files, in the boot after a panic."""
SERVICES = (
    PSTORE,
    JOURNAL,
    FLUSH,
    CLOCK,
    EVIDENCE,
    RECORDER,
    UPLOAD,
    RECEIVE,
    NETCONSOLE,
    NETCONSOLE_RECEIVE,
    KDUMP,
)
