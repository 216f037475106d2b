"""Bring a node's memory to the state in `desired`."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from core.model import CONTAINER_SLICE, Node, Rack
from core.ops import remote_files
from core.ops.announce import file_diff
from core.ops.operation import Changeset, managed_operation
from core.ops.shell import quote, sudo_script
from core.util import managed_file
from core.util.event import Action, Event, EventKind, acted, file_acted, value_change
from roles.memory import (
    ROLE,
    container_slice,
    daemon_protection,
    desired,
    memory_gate,
    memory_guard,
    unit_commands,
    unit_paths,
)
from roles.memory.cgroups import CGROUPS, GUARD, SYSTEM, WANTS
from roles.memory.facts import OTHERS, UNITS, ZRAM, MemoryFacts
from roles.memory.options import MemoryOptions

SLICE_MARK, PROTECTION_MARK, GUARD_MARK = "ceiling", "protect", "guard"
"""Names of the marks for changed unit files that systemd has yet to read."""


@deploy(ROLE.title)
def apply(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """Turn swap off permanently (`swap: true` in rack.yaml: not managed), set kernel settings live and at boot, a limit
    for all containers, a guard for memory that no limit counts, and protect daemons from a shortage.

    No limit counts memory that CUDA takes; the guard reads four times a second, and a faster allocation is too fast for
    it.
    """
    if not rack.options(MemoryOptions).swap:
        swap_off(name="Turn swap off, now and after a reboot", rack=rack)
    keep_free(name="Keep memory free for the kernel, live and at boot", rack=rack)
    limit_containers(name="Bound all containers together", rack=rack)
    protect_daemons(name="Protect sshd, the network and logins", rack=rack)
    # Last: it checks the results of the limit and the protection.
    run_memory_guard(name="Watch how much memory is available", rack=rack)
    install_memory_gate(name="Install the step that makes room before a launch", rack=rack)


@managed_operation("memory", MemoryFacts)
def swap_off(facts: MemoryFacts) -> Changeset:
    """End swapping: fstab entries commented out, swap units masked, swap areas and zram devices released."""
    fstab = facts.reading.content(desired.FSTAB) or b""
    units = desired.to_mask(facts.reading.text(UNITS))
    swapped = desired.active(facts.reading.text("/proc/swaps"))
    zram = desired.configured_zram(facts.reading.text(ZRAM))
    wanted = desired.without_swap(fstab)
    if wanted == fstab and not units and not swapped and not zram:
        return Changeset(in_sync_reason="swap is off, and nothing brings it back")
    events = [file_diff(desired.FSTAB, fstab, wanted)] if wanted != fstab else []
    events += [*acted(Action.MASK, *units), *acted(Action.SWAPOFF, *swapped), *acted(Action.RELEASE, *zram)]
    commands = []
    if wanted != fstab:
        # A last check that the file was not written in between.
        unchanged = f"base64 -w0 {desired.FSTAB} | grep -qxF {quote(remote_files.encoded(fstab))}"
        commands.append(remote_files.put(desired.FSTAB, wanted, mode="644", before=fstab, check=unchanged))
    if units:
        commands.append(sudo_script(f"systemctl mask --quiet {quote(*units)}"))
    if swapped or units:
        commands.append(sudo_script("swapoff -a"))
    commands += [sudo_script(zram_reset_script(device)) for device in zram]
    return Changeset(events=tuple(events), commands=tuple(commands))


def zram_reset_script(device: str) -> str:
    """Return the shell text that frees a zram device's memory.

    The kernel refuses while the device is open, and udev opens it for a moment after every use, so this retries for ten
    seconds. A device that no longer exists by then, as zram-generator's, is the desired result.
    """
    reset = quote(f"/sys/block/{device}/reset")
    busy = quote(f"{device} is still in use; lsof /dev/{device} tells by whom")
    return (
        f"n=0; while [ -e {reset} ]; do if echo 1 > {reset} 2>/dev/null; then break; fi; "
        f"n=$((n + 1)); [ $n -lt 50 ] || {{ echo {busy} >&2; exit 1; }}; sleep 0.2; done"
    )


@managed_operation("memory", MemoryFacts)
def keep_free(facts: MemoryFacts) -> Changeset:
    """Set the kernel's memory settings now and in a drop-in that is read last."""
    wanted, before = desired.sysctls(facts.rack), facts.reading.content(desired.DROPIN)
    total = facts.total_kb
    live = {key: facts.reading.number(desired.live_path(key)) for key in wanted}
    overriders = desired.conflicting_settings(facts.reading.text(OTHERS), facts.rack)
    too_much = desired.too_much_free(facts.rack, total)
    if too_much or overriders:
        return Changeset(blockers=(*([too_much] if too_much else []), *overriders))
    after = desired.dropin(facts.rack)
    wrong = {key: value for key, value in wanted.items() if live[key] != value}
    if before == after and not wrong:
        return Changeset(in_sync_reason="the kernel keeps what it shall, live and at boot")
    events = [file_diff(desired.DROPIN, before, after)] if before != after else []
    events += [value_change(key, live[key], value) for key, value in wrong.items()]
    commands = [remote_files.put(desired.DROPIN, after, mode="644")] if before != after else []
    if wrong:
        commands.append(sudo_script(f"sysctl -qw {quote(*(f'{key}={value}' for key, value in wrong.items()))}"))
    return Changeset(events=tuple(events), commands=tuple(commands))


@managed_operation("memory", MemoryFacts)
def limit_containers(facts: MemoryFacts) -> Changeset:
    """Keep the slice of all containers: its unit, started from boot on, and its limits live."""
    rack, now = facts.rack, facts.live.group(CONTAINER_SLICE)
    stale = facts.stale([container_slice.unit(rack)])
    wrong = container_slice.wrong(rack, now)
    changes = container_slice.changes(rack, now)
    warnings = tuple(Event(EventKind.NOTE, detail=line) for line in container_slice.notes(rack, facts.total_kb))
    reload = bool(stale or now.dropins or f"memory-{SLICE_MARK}" in facts.live.pending)
    if not (reload or wrong) and now.there and now.enabled:
        return Changeset(warnings=warnings, in_sync_reason="all containers together are bounded, live and at boot")
    events = [
        *file_acted(Action.MOVE, *now.dropins, detail=f"it changes {CONTAINER_SLICE}"),
        *managed_file.changes(stale, facts.reported),
        *(changes if wrong or not now.there else []),
        *(() if now.enabled else acted(Action.ENABLE, CONTAINER_SLICE)),
        *facts.live.unread(SLICE_MARK),
    ]
    commands = [unit_commands.mark(SLICE_MARK)] if reload else []
    if now.dropins:
        commands.append(unit_commands.aside(now.dropins))
    commands += unit_commands.put(stale)
    if reload:
        commands.append(unit_commands.taken_up(SLICE_MARK, enable="" if now.enabled else CONTAINER_SLICE))
    elif not now.enabled:
        commands.append(sudo_script(f"systemctl enable --quiet {CONTAINER_SLICE}"))
    if not now.there:
        limit = f"{CGROUPS}/{CONTAINER_SLICE}/memory.max"
        commands.append(sudo_script(f"systemctl start {CONTAINER_SLICE}; cat {limit} > /dev/null"))
    # systemd knows the new value by now but leaves the control group as it is until it next looks (measured).
    commands += [sudo_script(f"echo {wanted} > {CGROUPS}/{CONTAINER_SLICE}/{file}") for file, wanted in wrong.items()]
    return Changeset(warnings=warnings, events=tuple(events), commands=tuple(commands))


@managed_operation("memory", MemoryFacts)
def protect_daemons(facts: MemoryFacts) -> Changeset:
    """Reserve memory for sshd, the network and logins, and protect them from the OOM killer; restarts nothing."""
    live = facts.live
    stale = facts.stale(daemon_protection.dropins(facts.rack))
    kept = daemon_protection.drifted_reservations(live)
    exposed = daemon_protection.unprotected_daemons(live)
    reload = bool(stale or f"memory-{PROTECTION_MARK}" in live.pending)
    if not (reload or kept or exposed):
        return Changeset(in_sync_reason="sshd, the network and logins are protected")
    commands = [unit_commands.mark(PROTECTION_MARK)] if reload else []
    commands += unit_commands.put(stale)
    if reload:
        commands.append(unit_commands.taken_up(PROTECTION_MARK))
    for unit, wanted in kept.items():
        group = unit if unit == SYSTEM else f"{SYSTEM}/{unit}"
        commands.append(sudo_script(f"echo {wanted} > {CGROUPS}/{group}/memory.min"))
    for daemon in exposed:
        # A running process keeps its score regardless of its unit, and sshd is not restarted for it.
        main = f"$(systemctl show --property=MainPID --value {daemon.unit})"
        commands.append(sudo_script(f'p={main}; [ "$p" -gt 0 ]; echo {daemon.score} > "/proc/$p/oom_score_adj"'))
    return Changeset(
        events=(
            *managed_file.changes(stale, facts.reported),
            *daemon_protection.changes(live),
            *live.unread(PROTECTION_MARK),
        ),
        commands=tuple(commands),
    )


@managed_operation("memory", MemoryFacts)
def run_memory_guard(facts: MemoryFacts) -> Changeset:
    """Keep the guard running with the rack's floor, or no guard at all without a floor."""
    rack, now = facts.rack, facts.live.group(GUARD)
    stale = facts.stale(memory_guard.files(rack))
    if not rack.options(MemoryOptions).floor:
        return _without_guard(facts)
    pending = f"memory-{GUARD_MARK}" in facts.live.pending
    restart = memory_guard.restart(rack, now, pending, bool(stale or now.dropins))
    if restart and (blocker := memory_guard.start_blocker(rack, facts.live, facts.total_kb, facts.available_kb)):
        return Changeset(blockers=(blocker,))
    if not restart and now.enabled:
        return Changeset(in_sync_reason="the guard is armed")
    events = (
        *file_acted(Action.MOVE, *now.dropins, detail=f"it changes {GUARD}"),
        *managed_file.changes(stale, facts.reported),
        *([restart] if restart else []),
        *(() if now.enabled else acted(Action.ENABLE, GUARD)),
    )
    commands = [unit_commands.mark(GUARD_MARK)]
    if now.dropins:
        commands.append(unit_commands.aside(now.dropins))
    commands += unit_commands.put(stale)
    commands.append(unit_commands.taken_up(GUARD_MARK, f"systemctl restart {GUARD}" if restart else "", enable=GUARD))
    return Changeset(events=events, commands=tuple(commands))


def _without_guard(facts: MemoryFacts) -> Changeset:
    now = facts.live.group(GUARD)
    pending = f"memory-{GUARD_MARK}" in facts.live.pending
    ours = facts.there(memory_guard.UNIT, memory_guard.SCRIPT)
    if not (now.there or now.enabled or now.dropins or pending or ours):
        return Changeset(in_sync_reason="there is no guard")
    # `systemctl disable` fails when the unit was removed and its link was left.
    link = f"{unit_paths.UNITS}/{WANTS[GUARD]}/{GUARD}"
    gone = f"systemctl stop {GUARD} 2>/dev/null || true; rm -f {link} {memory_guard.UNIT} {memory_guard.SCRIPT}"
    return Changeset(
        events=acted(Action.STOP_AND_REMOVE, GUARD, detail="memory.floor is false"),
        commands=(
            unit_commands.mark(GUARD_MARK),
            *([unit_commands.aside(now.dropins)] if now.dropins else []),
            unit_commands.taken_up(GUARD_MARK, f"{gone}; systemctl daemon-reload"),
        ),
    )


@managed_operation("memory", MemoryFacts)
def install_memory_gate(facts: MemoryFacts) -> Changeset:
    """Install the program that frees memory before a launch. It is not run."""
    stale = facts.stale([memory_gate.script(facts.rack)])
    if not stale:
        return Changeset(in_sync_reason="the launch step is there")
    events = tuple(managed_file.changes(stale, facts.reported))
    return Changeset(events=events, commands=tuple(unit_commands.put(stale)))
