"""Bring what a node leaves behind when it dies to the state in `desired`, `watchdog`, `clock_cap` and `recorder`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pyinfra.api.command import StringCommand
from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops import apt, remote_files
from core.ops.announce import file_diff, managed_file_change
from core.ops.managed_service import NO_CHANGES, ServiceChanges
from core.ops.operation import Changeset, managed_operation
from core.ops.shell import quote, sudo_script
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
    services,
    stream_apply,
    watchdog,
)
from roles.blackbox.facts import BlackboxFacts
from roles.blackbox.options import BlackboxOptions


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
    commands = remote_files.put_files(stale)
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
    events, commands = _file_events(facts, stale), remote_files.put_files(stale)
    if unread and not stale:
        events.append(_grub_change(stage.grub, watchdog.PARAMETER, stage.following, "1"))
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
    commands = remote_files.put_files(stale)
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
    changes = services.PSTORE.differences(facts.state(services.PSTORE, desired.pstore_files(facts.rack)))
    if facts.backend.loadable:
        backend = "/sys/module/pstore/parameters/backend"
        none = quote("pstore has no backend although efi_pstore is loaded; dmesg | grep pstore")
        load = f"modprobe {desired.MODULE}; ! grep -qxF '(null)' {backend} || {{ echo {none} >&2; exit 1; }}"
        event = value_change("backend of pstore", None, desired.MODULE)
        changes += ServiceChanges((event,), (sudo_script(load),))
    return changes.changeset("records of panics are archived")


@managed_operation("blackbox", BlackboxFacts)
def keep_journal(facts: BlackboxFacts) -> Changeset:
    """Keep the journal on the disk, synchronized in the declared interval; journald is restarted for new settings."""
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    changes = services.FLUSH.differences(facts.state(services.FLUSH))
    changes += services.JOURNAL.differences(facts.state(services.JOURNAL, [desired.journal_file(facts.rack)]))
    if not facts.persistent:
        event = value_change("journal", "in memory", "on the disk")
        changes += ServiceChanges((event,), (sudo_script("journalctl --flush"),))
    return changes.changeset("the journal is on the disk")


@managed_operation("blackbox", BlackboxFacts)
def cap_clock(facts: BlackboxFacts) -> Changeset:
    """Run the unit that caps the clock of the GPU, now and at boot; remove it where no cap is declared any more."""
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    if facts.cap is None:
        why, lift = "rack.yaml declares no clock_cap for this node", "nvidia-smi -rgc > /dev/null"
        removal = services.CLOCK.removal(facts.state(services.CLOCK), why, lift)
        return removal.changeset("the clock of the GPU has no cap")
    above = facts.clock is not None and facts.clock > facts.cap + clock_cap.TOLERANCE
    reasons = {clock_cap.NAME: f"the clock is {facts.clock} MHz, the cap {facts.cap} MHz"} if above else {}
    state = facts.state(services.CLOCK, [clock_cap.unit(facts.rack, facts.cap)])
    return services.CLOCK.differences(state, reasons).changeset(f"the clock of the GPU is at most {facts.cap} MHz")


@managed_operation("blackbox", BlackboxFacts)
def collect_evidence(facts: BlackboxFacts) -> Changeset:
    """Run the units that mark a shutdown in order and collect evidence in each boot; remove them where rack.yaml
    declares none.

    The evidence of the present boot is collected at once.
    """
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    service, hashes = services.EVIDENCE, facts.evidence_files
    if not boot_evidence.wanted(facts.rack):
        removal = service.removal(facts.state(service, hashes=hashes), "rack.yaml declares boot_evidence: false")
        return removal.changeset("no evidence is collected")
    # The unit that has collected stays active, also when its result was removed.
    missing = facts.units[boot_evidence.COLLECT].settled and not facts.evidence_collected
    reasons = {boot_evidence.COLLECT: "this boot has no evidence"} if missing else {}
    changes = service.differences(facts.state(service, boot_evidence.files(facts.rack), hashes), reasons)
    return changes.changeset("evidence is collected in each boot")


@managed_operation("blackbox", BlackboxFacts)
def record_samples(facts: BlackboxFacts) -> Changeset:
    """Run the flight recorder, and the receiver where other nodes send; remove what is no longer declared.

    The rings stay: they are evidence.
    """
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    now, paths = facts.recorder_service, {file.path for file in facts.recorder_files}
    wanted = tuple(name for name, path in recorder.UNITS.items() if path in paths)
    surplus = tuple(
        name
        for name, path in recorder.UNITS.items()
        if path not in paths and (facts.before(path) is not None or now.units[name].load == "loaded")
    )
    why = "rack.yaml declares nothing that needs it"
    if not wanted:
        service = replace(services.RECORDER, units=surplus or (recorder.NAME,))
        return service.removal(now, why).changeset("no flight recorder is declared")
    changes = replace(services.RECORDER, units=wanted).differences(now, _silent_recorder_reasons(facts))
    if surplus:
        units = tuple(recorder.UNITS[name] for name in surplus)
        changes += replace(services.RECORDER, units=surplus, paths=units, leftovers=()).removal(now, why)
    return changes.changeset("samples of the node are recorded")


def _silent_recorder_reasons(facts: BlackboxFacts) -> dict[str, str]:
    """Return why a recorder that runs is restarted: it writes nothing."""
    age = facts.recorder_state.age
    # Also in the future: the clock went back, and a recorder that runs would have written since.
    if not facts.recorder_units[recorder.NAME].settled or (age is not None and abs(age) <= recorder.SILENT):
        return {}
    return {
        recorder.NAME: "it has written no sample" if age is None else f"its last sample is {recorder.age_text(age)}"
    }


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
        events.append(_grub_change(now.grub, kdump.PARAMETER, now.following, value))
    read = sudo_script(boot_parameters.update(kdump.FRAGMENT, kdump.PARAMETER, value))
    return Changeset(events=tuple(events), commands=(*remote_files.put_files(stale), read))


def _grub_change(grub: boot_parameters.Grub, name: str, following: str, value: str) -> Event:
    """Return the change of a configuration of GRUB that has not what our fragment says, or is not whole."""
    if following == value and grub.unfinished:
        return value_change(boot_parameters.CONFIG, "an update-grub that failed", "whole")
    return value_change(f"{name} in {boot_parameters.CONFIG}", following or None, value)


def _without_crash_kernel(facts: BlackboxFacts) -> Changeset:
    there = [path for path in kdump.PATHS if path in facts.kdump_files]
    fragment = facts.before(kdump.FRAGMENT) is not None
    if not there and not fragment:
        return Changeset(in_sync_reason="no crash kernel is declared")
    before = facts.before(kdump.SETTINGS)
    commands: list[StringCommand] = []
    events: list[Event] = []
    if fragment:
        grub = not facts.crash_kernel.grub.missing
        commands.append(sudo_script(boot_parameters.remove(kdump.FRAGMENT) if grub else f"rm -f {kdump.FRAGMENT}"))
        events += file_acted(Action.REMOVE, kdump.FRAGMENT, detail="a reboot frees the memory")
    if before is not None and (after := kdump.off(before)) != before:
        # First: with the fragment gone nothing tells the next run that these settings are ours.
        events.append(file_diff(kdump.SETTINGS, before, after))
        commands.insert(0, remote_files.put(kdump.SETTINGS, after, mode="644", before=before))
    changes = ServiceChanges(tuple(events), tuple(commands)) + _remove_files(there)
    return Changeset(events=changes.events, commands=changes.commands)


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
    changes = _remove_files([] if files else [path for path in kdump.PATHS if path in facts.kdump_files])
    edit = NO_CHANGES
    if after != before:
        check = kdump.check_settings(settings)
        put = remote_files.put(kdump.SETTINGS, after, mode="644", before=before, check=check)
        edit = ServiceChanges((file_diff(kdump.SETTINGS, before, after),), (put,))
    reasons = {kdump.UNIT: "none is loaded"} if kdump.loadable(wanted, now) else {}
    changes += services.KDUMP.differences(facts.kdump_service(files), reasons, also=edit)
    return changes.changeset("a crash kernel is loaded at each boot", warnings)


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


def _remove_files(paths: list[str]) -> ServiceChanges:
    if not paths:
        return NO_CHANGES
    return ServiceChanges(file_acted(Action.REMOVE, *paths), (sudo_script(f"rm -f {' '.join(paths)}"),))


def _file_events(facts: BlackboxFacts, stale: Iterable[ManagedFile]) -> list[Event]:
    return [managed_file_change(file, facts.before(file.path)) for file in stale]
