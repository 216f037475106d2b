"""Bring what a node leaves behind when it dies to the state in `desired`, `watchdog`, `clock_cap` and `recorder`."""

from __future__ import annotations

from collections.abc import Iterable
from posixpath import dirname

from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops import apt, remote_files
from core.ops.announce import file_diff, managed_file_change
from core.ops.operation import Changeset, managed_operation
from core.ops.shell import quote, sudo_script
from core.probes.systemd_units import SystemdUnit
from core.util import managed_file
from core.util.event import Action, Event, EventKind, acted, file_acted, value_change
from core.util.managed_file import ManagedFile
from roles.blackbox import (
    ROLE,
    boot_evidence,
    boot_parameters,
    clock_cap,
    desired,
    kdump,
    recorder,
    stream_apply,
    watchdog,
)
from roles.blackbox.facts import BlackboxFacts
from roles.blackbox.options import BlackboxOptions
from roles.blackbox.pending import mark, unmark, write_files


@deploy(ROLE.title)
def apply(rack: Rack, node: Node) -> None:
    """Arm the watchdog, set the kernel's policy for panics, keep their records and the journal, cap the GPU's clock,
    collect evidence in each boot, keep a crash kernel, send the journal to another node and record samples where that
    is declared; nothing without a declaration.

    Reboots nothing: what takes a reboot is reported.
    """
    if rack.declared(BlackboxOptions) is None:
        return
    feed_watchdog(name="Let systemd feed the watchdog", rack=rack, node=node)
    panic_before_reset(name="Let the watchdog cause a panic first", rack=rack, node=node)
    set_panic_policy(name="Reboot after a panic of the kernel", rack=rack, node=node)
    keep_panic_records(name="Keep the records of panics", rack=rack, node=node)
    keep_journal(name="Keep the journal on the disk", rack=rack, node=node)
    cap_clock(name="Cap the clock of the GPU", rack=rack, node=node)
    collect_evidence(name="Collect evidence about the end of each boot", rack=rack, node=node)
    reserve_memory(name="Reserve memory for a crash kernel", rack=rack, node=node)
    install_kdump(name="Install the programs of the crash kernel", rack=rack, node=node)
    load_crash_kernel(name="Keep a crash kernel loaded", rack=rack, node=node)
    report_reboot(name="Report whether a reboot is needed", rack=rack, node=node)
    stream_apply.install_package(name="Install sender and receiver of journals", rack=rack, node=node)
    stream_apply.make_key(name="Make the key of the node for its journal", rack=rack, node=node)
    stream_apply.certify(name="Certify the key of the node", rack=rack, node=node)
    stream_apply.receive_journals(name="Receive the journals of other nodes", rack=rack, node=node)
    stream_apply.send_journal(name="Send the journal to another node", rack=rack, node=node)
    stream_apply.receive_kernel_messages(name="Receive the kernel messages of other nodes", rack=rack, node=node)
    stream_apply.send_kernel_messages(name="Send the kernel's messages to another node", rack=rack, node=node)
    record_samples(name="Record samples of the node", rack=rack, node=node)
    stream_apply.remove_certificates(name="Remove certificates that are not needed", rack=rack, node=node)


@managed_operation("blackbox", BlackboxFacts)
def feed_watchdog(facts: BlackboxFacts) -> Changeset:
    """Write the drop-in of systemd, and execute systemd again where it feeds the watchdog otherwise."""
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    if not watchdog.limit(facts.rack):
        return Changeset(in_sync_reason="the watchdog is left alone")
    stale = facts.stale([watchdog.file(facts.rack, facts.device)])
    wrong = facts.watchdog_differences
    if not stale and not wrong:
        return Changeset(in_sync_reason="systemd feeds the watchdog")
    commands = write_files(stale)
    if wrong:
        state = f"{watchdog.SYSFS}/{facts.device.name}/state"
        silent = quote(f"systemd does not feed {facts.device.path}; journalctl --boot _PID=1")
        commands.append(
            sudo_script(
                f"systemctl daemon-reexec; n=0; until grep -qx active {state}; do n=$((n + 1)); "
                f"[ $n -lt 50 ] || {{ echo {silent} >&2; exit 1; }}; sleep 0.2; done"
            )
        )
    return Changeset(events=(*_file_events(facts, stale), *wrong), commands=tuple(commands))


@managed_operation("blackbox", BlackboxFacts)
def panic_before_reset(facts: BlackboxFacts) -> Changeset:
    """Set what the driver of the watchdog does at its first signal, from its next start on; say where nothing can.

    The module has a file of modprobe, a driver that is built in has a fragment of GRUB.
    """
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    if not watchdog.limit(facts.rack):
        return Changeset(in_sync_reason="the watchdog is left alone")
    stage, wanted = facts.first_stage, facts.first_stage_files
    declared = watchdog.panics(facts.rack)
    notes = [stage.no_effect] if declared and stage.no_effect else []
    warnings = (
        *(Event(EventKind.NOTE, detail=note) for note in notes),
        *(Event(EventKind.BROKEN, detail=fault) for fault in stage.broken),
    )
    paths = {file.path for file in wanted}
    surplus = [
        path for path in (watchdog.MODPROBE, watchdog.FRAGMENT) if path not in paths and facts.before(path) is not None
    ]
    stale = facts.stale(wanted)
    # A run that died after the file, or an update-grub that failed: GRUB has not read it yet.
    unread = watchdog.FRAGMENT in paths and (stage.following != "1" or stage.grub.unfinished)
    if not (stale or surplus or unread):
        return Changeset(warnings=warnings, in_sync_reason="the first stage of the watchdog is as declared")
    events, commands = _file_events(facts, stale), write_files(stale)
    if unread and not stale:
        events.append(_unread(stage.grub, watchdog.PARAMETER, stage.following, "1"))
    if watchdog.FRAGMENT in paths:
        commands.append(sudo_script(boot_parameters.update(watchdog.FRAGMENT, watchdog.PARAMETER, "1")))
    elif stale:
        commands.append(sudo_script(watchdog.check_modprobe()))
    for path in surplus:
        events += file_acted(Action.REMOVE, path, detail="takes effect at the next boot")
        by_grub = path == watchdog.FRAGMENT and not stage.grub.missing
        steps = boot_parameters.remove(path) if by_grub else f"rm -f {path}"
        commands.append(sudo_script(steps))
    return Changeset(warnings=warnings, events=tuple(events), commands=tuple(commands))


@managed_operation("blackbox", BlackboxFacts)
def set_panic_policy(facts: BlackboxFacts) -> Changeset:
    """Set the kernel's policy for panics, live and at boot."""
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    stale = facts.stale([desired.panic_file(facts.rack)])
    wrong = desired.wrong_sysctls(facts.rack, facts.sysctls)
    warnings = desired.missing_sysctls(facts.rack, facts.sysctls)
    if not stale and not wrong:
        return Changeset(warnings=warnings, in_sync_reason="the kernel panics and reboots as declared")
    commands = write_files(stale)
    if wrong:
        commands.append(sudo_script(f"sysctl -qw {quote(*(f'{key}={value}' for key, value in wrong.items()))}"))
    events = [value_change(key, facts.sysctls[key], value) for key, value in wrong.items()]
    return Changeset(warnings=warnings, events=(*_file_events(facts, stale), *events), commands=tuple(commands))


@managed_operation("blackbox", BlackboxFacts)
def keep_panic_records(facts: BlackboxFacts) -> Changeset:
    """Register the backend of pstore, and have its records archived at every boot and never deleted by age."""
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    if not facts.options.pstore:
        return Changeset(in_sync_reason="pstore is left alone")
    stale = facts.stale(desired.pstore_files(facts.rack))
    unit = facts.units[desired.PSTORE_UNIT]
    load = facts.backend.loadable
    if not stale and not load and unit.file == "enabled":
        return Changeset(in_sync_reason="records of panics are archived")
    commands, events = write_files(stale), _file_events(facts, stale)
    if unit.file != "enabled":
        events += _enabled(desired.PSTORE_UNIT, unit)
        steps = [f"systemctl unmask --quiet {desired.PSTORE_UNIT}"] if unit.masked else []
        commands.append(sudo_script("; ".join((*steps, f"systemctl enable --quiet {desired.PSTORE_UNIT}"))))
    if load:
        events.append(value_change("backend of pstore", None, desired.MODULE))
        backend = "/sys/module/pstore/parameters/backend"
        none = quote("pstore has no backend although efi_pstore is loaded; dmesg | grep pstore")
        commands.append(
            sudo_script(f"modprobe {desired.MODULE}; ! grep -qxF '(null)' {backend} || {{ echo {none} >&2; exit 1; }}")
        )
    return Changeset(events=tuple(events), commands=tuple(commands))


@managed_operation("blackbox", BlackboxFacts)
def keep_journal(facts: BlackboxFacts) -> Changeset:
    """Keep the journal on the disk, synchronized in the declared interval; journald is restarted for new settings.

    Services keep their connection to the journal: systemd stores it over the restart.
    """
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    stale, flush = facts.stale([desired.journal_file(facts.rack)]), facts.units[desired.FLUSH_UNIT]
    restart = bool(stale) or facts.pending("journal")
    if not (restart or flush.masked) and facts.persistent:
        return Changeset(in_sync_reason="the journal is on the disk")
    events, commands = _file_events(facts, stale), [mark("journal")] if restart else []
    commands += write_files(stale)
    steps = []
    if flush.masked:
        events += acted(Action.UNMASK, desired.FLUSH_UNIT)
        steps.append(f"systemctl unmask --quiet {desired.FLUSH_UNIT}")
    if restart:
        why = None if stale else "it has not read its settings"
        events.append(Event(EventKind.RESTART, subject=desired.JOURNAL_UNIT, action=Action.RESTART, detail=why))
        steps.append(f"systemctl restart {desired.JOURNAL_UNIT}")
    if not facts.persistent:
        events.append(value_change("journal", "in memory", "on the disk"))
    if restart or not facts.persistent:
        steps.append("journalctl --flush")
    if restart:
        steps.append(unmark("journal"))
    if steps:
        commands.append(sudo_script("; ".join(steps)))
    return Changeset(events=tuple(events), commands=tuple(commands))


@managed_operation("blackbox", BlackboxFacts)
def cap_clock(facts: BlackboxFacts) -> Changeset:
    """Run the unit that caps the clock of the GPU, now and at boot; remove it where no cap is declared any more."""
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    now, pending = facts.units[clock_cap.NAME], facts.pending("clock")
    if facts.cap is None:
        return _without_cap(facts, pending)
    stale = facts.stale([clock_cap.unit(facts.rack, facts.cap)])
    above = facts.clock is not None and facts.clock > facts.cap + clock_cap.TOLERANCE
    new = bool(stale) or now.reload or pending
    restart = new or now.active != "active" or above
    enable = now.file != "enabled"
    if not (restart or enable):
        return Changeset(in_sync_reason=f"the clock of the GPU is at most {facts.cap} MHz")
    events, commands = _file_events(facts, stale), [mark("clock")] if new else []
    commands += write_files(stale)
    steps = ["systemctl daemon-reload"] if new else []
    if enable:
        events += _enabled(clock_cap.NAME, now)
        steps += [f"systemctl unmask --quiet {clock_cap.NAME}"] if now.masked else []
        steps.append(f"systemctl enable --quiet {clock_cap.NAME}")
    if restart:
        why = f"the clock is {facts.clock} MHz, the cap {facts.cap} MHz" if above else None
        events.append(Event(EventKind.RESTART, subject=clock_cap.NAME, action=Action.RESTART, detail=why))
        steps.append(f"systemctl restart {clock_cap.NAME}")
    if new:
        steps.append(unmark("clock"))
    if steps:
        commands.append(sudo_script("; ".join(steps)))
    return Changeset(events=tuple(events), commands=tuple(commands))


def _without_cap(facts: BlackboxFacts, pending: bool) -> Changeset:
    there = facts.before(clock_cap.UNIT) is not None or facts.units[clock_cap.NAME].load == "loaded"
    if not there and not pending:
        return Changeset(in_sync_reason="the clock of the GPU has no cap")
    # The link is removed by hand: `systemctl disable` fails for a unit whose file is gone.
    link = f"/etc/systemd/system/multi-user.target.wants/{clock_cap.NAME}"
    steps = (
        "nvidia-smi -rgc > /dev/null",
        f"systemctl stop {clock_cap.NAME} 2> /dev/null || true",
        f"rm -f {link} {clock_cap.UNIT}",
        "systemctl daemon-reload",
        unmark("clock"),
    )
    return Changeset(
        events=acted(Action.STOP_AND_REMOVE, clock_cap.NAME, detail="rack.yaml declares no clock_cap for this node"),
        commands=(mark("clock"), sudo_script("; ".join(steps))),
    )


@managed_operation("blackbox", BlackboxFacts)
def collect_evidence(facts: BlackboxFacts) -> Changeset:
    """Run the units that mark a shutdown in order and collect evidence in each boot; remove them where rack.yaml
    declares none.

    The evidence of the present boot is collected at once.
    """
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    pending = facts.pending("evidence")
    if not boot_evidence.wanted(facts.rack):
        return _without_evidence(facts, pending)
    stale = managed_file.differing(boot_evidence.files(facts.rack), facts.evidence_files)
    units = {name: facts.units[name] for name in boot_evidence.NAMES}
    disabled = [name for name, unit in units.items() if unit.file != "enabled"]
    reload = bool(stale) or pending or any(unit.reload for unit in units.values())
    start = [name for name, unit in units.items() if unit.active != "active"]
    if boot_evidence.COLLECT not in start and not facts.evidence_collected:
        start.append(boot_evidence.COLLECT)
    if not (reload or disabled or start):
        return Changeset(in_sync_reason="evidence is collected in each boot")
    events = managed_file.changes(stale, facts.evidence_files)
    for name in disabled:
        events += _enabled(name, units[name])
    if reload and not stale:
        why = "systemd has not read the units of the boot evidence"
        events.append(Event(EventKind.RESTART, subject="systemd", action=Action.RELOAD, detail=why))
    events += [Event(EventKind.RESTART, subject=name, action=Action.START) for name in start]
    commands = [mark("evidence"), *write_files(stale)] if stale else []
    steps = ["systemctl daemon-reload"] if reload else []
    steps += [f"systemctl unmask --quiet {name}" for name in disabled if units[name].masked]
    if disabled:
        steps.append(f"systemctl enable --quiet {' '.join(disabled)}")
    # Not start: the unit that has collected stays active, also when its result was removed.
    steps += [f"systemctl restart {name}" for name in start]
    if reload:
        steps.append(unmark("evidence"))
    return Changeset(events=tuple(events), commands=(*commands, sudo_script("; ".join(steps))))


def _without_evidence(facts: BlackboxFacts, pending: bool) -> Changeset:
    loaded = any(facts.units[name].load == "loaded" for name in boot_evidence.NAMES)
    if not facts.evidence_files and not loaded and not pending:
        return Changeset(in_sync_reason="no evidence is collected")
    names = " ".join(boot_evidence.NAMES)
    steps = (
        f"systemctl stop {names} 2> /dev/null || true",
        f"rm -f {' '.join((*boot_evidence.LINKS, *boot_evidence.PATHS))}",
        "systemctl daemon-reload",
        unmark("evidence"),
    )
    return Changeset(
        events=acted(Action.STOP_AND_REMOVE, names, detail="rack.yaml declares boot_evidence: false"),
        commands=(mark("evidence"), sudo_script("; ".join(steps))),
    )


@managed_operation("blackbox", BlackboxFacts)
def record_samples(facts: BlackboxFacts) -> Changeset:
    """Run the flight recorder, and the receiver where other nodes send; remove what is no longer declared.

    The rings stay: they are evidence.
    """
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    files = facts.recorder_files
    program = managed_file.differing([one for one in files if one.path == recorder.PROGRAM], facts.recorder_program)
    units = facts.stale(one for one in files if one.path != recorder.PROGRAM)
    removed, removing = _surplus_recorder(facts)
    started, starting = _recorder_starts(facts, {file.path for file in (*program, *units)})
    events = (*managed_file.changes(program, facts.recorder_program), *_file_events(facts, units), *removed, *started)
    if not removing and not starting:
        reason = "samples of the node are recorded" if files else "no flight recorder is declared"
        return Changeset(in_sync_reason=reason)
    pending = facts.recorder_state.pending
    marked = bool(program or units or removing or pending)
    outdated = any(unit.reload for unit in facts.recorder_units.values())
    reload = ["systemctl daemon-reload"] if units or removing or pending or outdated else []
    steps = [*removing, *reload, *starting, *([unmark("recorder")] if marked else [])]
    written = write_files([*program, *units])
    commands = (*([mark("recorder")] if marked else []), *written, sudo_script("; ".join(steps)))
    return Changeset(events=events, commands=commands)


def _surplus_recorder(facts: BlackboxFacts) -> tuple[list[Event], list[str]]:
    """Return what of the recorder is there and not declared, and the steps that remove it."""
    events: list[Event] = []
    steps: list[str] = []
    wanted = {file.path for file in facts.recorder_files}
    for name, path in recorder.UNITS.items():
        if path not in wanted and (facts.before(path) is not None or facts.recorder_units[name].load == "loaded"):
            events += acted(Action.STOP_AND_REMOVE, name, detail="rack.yaml declares nothing that needs it")
            # The link is removed by hand: `systemctl disable` fails for a unit whose file is gone.
            link = f"/etc/systemd/system/multi-user.target.wants/{name}"
            steps += [f"systemctl stop {name} 2> /dev/null || true", f"rm -f {link} {path}"]
    if not wanted and facts.recorder_program:
        events += file_acted(Action.REMOVE, recorder.PROGRAM)
    if not wanted and not events and facts.recorder_state.pending:
        events += acted(Action.STOP_AND_REMOVE, recorder.NAME, detail="a run that removed it was interrupted")
    if not wanted and events:
        steps.append(f"rm -f {recorder.PROGRAM} {recorder.METRICS}")
    return events, steps


def _recorder_starts(facts: BlackboxFacts, written: set[str]) -> tuple[list[Event], list[str]]:
    """Return which units are enabled and restarted, and the steps; `written`: the files that differ."""
    events: list[Event] = []
    steps: list[str] = []
    state = facts.recorder_state
    # Also in the future: the clock went back, and a recorder that runs would have written since.
    silent = state.age is None or abs(state.age) > recorder.SILENT
    for name, path in recorder.UNITS.items():
        if all(file.path != path for file in facts.recorder_files):
            continue
        now = facts.recorder_units[name]
        if now.file != "enabled":
            events += _enabled(name, now)
            steps += [f"systemctl unmask --quiet {name}"] if now.masked else []
            steps.append(f"systemctl enable --quiet {name}")
        reason = None
        if not ({path, recorder.PROGRAM} & written or state.pending or now.reload):
            if now.active == "active" and name == recorder.NAME and silent:
                reason = (
                    "it has written no sample"
                    if state.age is None
                    else f"its last sample is {recorder.age_text(state.age)}"
                )
            elif now.active == "active":
                continue
        events.append(Event(EventKind.RESTART, subject=name, action=Action.RESTART, detail=reason))
        if name == recorder.NAME:
            steps.append(f"(umask 022; mkdir -p {dirname(recorder.METRICS)})")
        steps.append(f"systemctl restart {name}")
    return events, steps


@managed_operation("blackbox", BlackboxFacts)
def reserve_memory(facts: BlackboxFacts) -> Changeset:
    """Reserve memory for a crash kernel from the next boot on; give it back where none is declared any more."""
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    wanted, now = kdump.options(facts.rack), facts.crash_kernel
    if wanted is None:
        return _without_crash_kernel(facts)
    stale, value = facts.stale([kdump.fragment(facts.rack, wanted)]), kdump.parameter(wanted)
    if not stale and now.following == value and not now.grub.unfinished:
        return Changeset(in_sync_reason=f"{wanted.reserve} are reserved for a crash kernel at each boot")
    events = _file_events(facts, stale)
    if not stale:
        events.append(_unread(now.grub, kdump.PARAMETER, now.following, value))
    read = sudo_script(boot_parameters.update(kdump.FRAGMENT, kdump.PARAMETER, value))
    return Changeset(events=tuple(events), commands=(*write_files(stale), read))


def _unread(grub: boot_parameters.Grub, name: str, following: str, value: str) -> Event:
    """Return the change of a configuration of GRUB that has not what our fragment says, or is not whole."""
    if following == value and grub.unfinished:
        return value_change(boot_parameters.CONFIG, "an update-grub that failed", "whole")
    return value_change(f"{name} in {boot_parameters.CONFIG}", following or None, value)


def _without_crash_kernel(facts: BlackboxFacts) -> Changeset:
    there = [path for path in kdump.PATHS if path in facts.kdump_files]
    fragment = facts.before(kdump.FRAGMENT) is not None
    if not there and not fragment:
        return Changeset(in_sync_reason="no crash kernel is declared")
    before, commands = facts.before(kdump.SETTINGS), []
    events: list[Event] = []
    if fragment:
        grub = not facts.crash_kernel.grub.missing
        commands.append(sudo_script(boot_parameters.remove(kdump.FRAGMENT) if grub else f"rm -f {kdump.FRAGMENT}"))
        events += file_acted(Action.REMOVE, kdump.FRAGMENT, detail="a reboot frees the memory")
    if before is not None and (after := kdump.off(before)) != before:
        # First: with the fragment gone nothing tells the next run that these settings are ours.
        events.append(file_diff(kdump.SETTINGS, before, after))
        commands.insert(0, remote_files.put(kdump.SETTINGS, after, mode="644", before=before))
    if there:
        events += [event for path in there for event in file_acted(Action.REMOVE, path)]
        commands.append(sudo_script(f"rm -f {' '.join(there)}"))
    return Changeset(events=tuple(events), commands=tuple(commands))


@managed_operation("blackbox", BlackboxFacts)
def install_kdump(facts: BlackboxFacts) -> Changeset:
    """Install the distribution's programs of the crash kernel. They stay where none is declared any more."""
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    wanted = kdump.options(facts.rack)
    if wanted is None:
        return Changeset(in_sync_reason="no crash kernel is declared")
    if facts.crash_kernel.installed:
        return Changeset(in_sync_reason="the programs of the crash kernel are installed")
    return Changeset(events=acted(Action.INSTALL, *kdump.PACKAGES), commands=(apt.install(*kdump.PACKAGES),))


@managed_operation("blackbox", BlackboxFacts)
def load_crash_kernel(facts: BlackboxFacts) -> Changeset:
    """Set what a crash kernel writes, and have one loaded at each boot, and now where this boot has memory for it."""
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    wanted, now = kdump.options(facts.rack), facts.crash_kernel
    if wanted is None:
        return Changeset(in_sync_reason="no crash kernel is declared")
    warnings = tuple(Event(EventKind.BROKEN, detail=fault) for fault in kdump.broken(wanted, now))
    warnings += tuple(Event(EventKind.NOTE, detail=text) for text in kdump.unverified(wanted, now))
    files = kdump.files(facts.rack, wanted)
    stale = managed_file.differing(files, facts.kdump_files)
    if not now.installed:
        # The package brings the file; it is not there while a plan is made.
        events = file_acted(Action.MODIFY, kdump.SETTINGS, detail="when the package is installed")
        events = (*managed_file.changes(stale, facts.kdump_files), *events)
        return Changeset(warnings=warnings, events=events, provisional=True)
    before = facts.before(kdump.SETTINGS)
    settings = kdump.settings(wanted, before or b"")
    after = kdump.with_settings(before or b"", settings)
    enable, load = now.unit != "enabled", kdump.loadable(wanted, now)
    surplus = [] if files else [path for path in kdump.PATHS if path in facts.kdump_files]
    if after == before and not (enable or load or stale or surplus):
        return Changeset(warnings=warnings, in_sync_reason="a crash kernel is loaded at each boot")
    changes, commands, steps = managed_file.changes(stale, facts.kdump_files), write_files(stale), []
    if surplus:
        changes += [event for path in surplus for event in file_acted(Action.REMOVE, path)]
        commands.append(sudo_script(f"rm -f {' '.join(surplus)}"))
    if after != before:
        changes.append(file_diff(kdump.SETTINGS, before, after))
        check = kdump.check_settings(settings)
        commands.append(remote_files.put(kdump.SETTINGS, after, mode="644", before=before, check=check))
    if enable:
        masked = now.unit.startswith("masked")
        changes += [*(acted(Action.UNMASK, kdump.UNIT) if masked else ()), *acted(Action.ENABLE, kdump.UNIT)]
        steps += [f"systemctl unmask --quiet {kdump.UNIT}"] if masked else []
        steps.append(f"systemctl enable --quiet {kdump.UNIT}")
    if load:
        changes.append(Event(EventKind.RESTART, subject=kdump.UNIT, action=Action.RESTART, detail="none is loaded"))
        steps.append(kdump.load())
    if steps:
        commands.append(sudo_script("; ".join(steps)))
    return Changeset(warnings=warnings, events=tuple(changes), commands=tuple(commands))


@managed_operation("blackbox", BlackboxFacts)
def report_reboot(facts: BlackboxFacts) -> Changeset:
    """Report what takes effect at the next boot only."""
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    reasons = list(facts.backend.reboot if facts.options.pstore else ())
    if watchdog.limit(facts.rack):
        reasons += facts.first_stage.reboot
    reasons += kdump.reboot(kdump.options(facts.rack), facts.crash_kernel)
    return Changeset(
        warnings=tuple(Event(EventKind.NOTE, action=Action.REBOOT, detail=reason) for reason in reasons),
        in_sync_reason="a reboot is needed" if reasons else "no reboot is needed",
    )


def _enabled(name: str, unit: SystemdUnit) -> tuple[Event, ...]:
    return (*(acted(Action.UNMASK, name) if unit.masked else ()), *acted(Action.ENABLE, name))


def _file_events(facts: BlackboxFacts, stale: Iterable[ManagedFile]) -> list[Event]:
    return [managed_file_change(file, facts.before(file.path)) for file in stale]
